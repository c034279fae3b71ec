package znode

// The znodes that every ensemble has and that cannot be deleted.
const (
	Root       = "/"
	SystemRoot = "/zookeeper"
	QuotaRoot  = "/zookeeper/quota"
	ConfigPath = "/zookeeper/config"
)

func isSystem(path string) bool {
	return path == Root || path == SystemRoot || path == QuotaRoot || path == ConfigPath
}

// Genesis is the state that every ensemble starts from, as a Delta with zxid 0. The
// Stats are those of a fresh ZooKeeper server, whose system znodes came to be
// without transactions: children that were never created give / the cversion
// 2*0-1 and /zookeeper 2*0-2, and the first sequential child of / gets number 0.
func Genesis() Delta {
	plain := func() *Node { return &Node{ACL: OpenACL, Data: []byte{}} }
	config := &Node{Aversion: -1, ACL: []ACL{{Perms: PermRead, Scheme: "world", ID: "anyone"}}, Data: []byte{}}
	return Delta{
		Nodes: []NodeEffect{
			{Path: Root, Node: plain()},
			{Path: SystemRoot, Node: plain()},
			{Path: QuotaRoot, Node: plain()},
			{Path: ConfigPath, Node: config},
		},
		Children: []ChildrenEffect{
			{Path: Root, Children: Children{Live: 1}},
			{Path: SystemRoot, Children: Children{Live: 2}},
		},
	}
}

// bornChildren is how many children of path Genesis made, which no creation counted.
func bornChildren(path string) int64 {
	switch path {
	case Root:
		return 1
	case SystemRoot:
		return 2
	}
	return 0
}
