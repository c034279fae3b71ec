package znode

import (
	"strconv"
	"strings"
)

// A quota on the subtree P is two ordinary znodes under /zookeeper/quota/P that an
// administrator creates: zookeeper_limits, and zookeeper_stats, whose data follows
// the use of P without any trace in its Stat and without events. Where several
// prefixes of a path have limits, only the longest counts. Limits of / are ignored.
const (
	limitsName = "zookeeper_limits"
	usageName  = "zookeeper_stats"
)

// track is the text of either znode: count=N,bytes=M with further pairs behind.
// Missing numbers are -1, which is no limit.
type track struct {
	count, bytes, countHard, bytesHard int64
}

func parseTrack(data []byte) track {
	t := track{-1, -1, -1, -1}
	isSeparator := func(r rune) bool { return r == ',' || r == ';' }
	for pair := range strings.FieldsFuncSeq(string(data), isSeparator) {
		key, value, _ := strings.Cut(pair, "=")
		// zkCli writes "bytes=5=;" so that servers before 3.7 stop reading there.
		n, err := strconv.ParseInt(strings.TrimSuffix(value, "="), 10, 64)
		if err != nil {
			continue
		}
		switch key {
		case "count":
			t.count = n
		case "bytes":
			t.bytes = n
		case "countHardLimit":
			t.countHard = n
		case "byteHardLimit":
			t.bytesHard = n
		}
	}
	return t
}

func formatUsage(count, bytes int64) []byte {
	text := append([]byte("count="), strconv.FormatInt(count, 10)...)
	return strconv.AppendInt(append(text, ",bytes="...), bytes, 10)
}

// quota is what binds a path; the zero value is none.
type quota struct {
	usagePath string
	usage     *Node
	limits    *Node
}

// quotaOf finds the quota of the longest prefix of path that has limits. While
// there is no quota at all it costs one look-up of counters.
func (a *change) quotaOf(path string) (q quota) {
	if path == Root || a.children(QuotaRoot).Live == 0 {
		return quota{}
	}
	// Where the quota tree has no znode for a prefix, it has none for longer ones.
	for end := 0; end < len(path); {
		if next := strings.IndexByte(path[end+1:], '/'); next >= 0 {
			end += 1 + next
		} else {
			end = len(path)
		}
		dir := QuotaRoot + path[:end]
		if a.node(dir) == nil {
			break
		}
		if limits := a.node(Join(dir, limitsName)); limits != nil {
			usagePath := Join(dir, usageName)
			q = quota{usagePath: usagePath, usage: a.node(usagePath), limits: limits}
		}
	}
	return q
}

// within reports whether the hard limits allow the growth. ZooKeeper judges by the
// state before a multi and so lets one overshoot, and refuses what shrinks while
// above a limit; here a multi sees itself, and only growth is refused.
func (a *change) within(q quota, count, bytes int64) bool {
	if !a.rules.EnforceQuota || q.usage == nil {
		return true
	}
	used, limit := parseTrack(q.usage.Data), parseTrack(q.limits.Data)
	if count > 0 && limit.countHard >= 0 && used.count+count > limit.countHard {
		return false
	}
	return bytes <= 0 || limit.bytesHard < 0 || used.bytes+bytes <= limit.bytesHard
}

// use adds to the usage of q. The znode is looked up again, since it may be the one
// that was just created or removed.
func (a *change) use(q quota, count, bytes int64) {
	if q.usage == nil || count == 0 && bytes == 0 {
		return
	}
	prev := a.node(q.usagePath)
	if prev == nil {
		return
	}
	used := parseTrack(prev.Data)
	n := new(Node)
	*n = *prev
	n.Data = formatUsage(used.count+count, used.bytes+bytes)
	a.putNode(q.usagePath, n, prev)
}

// Excess tells that a transaction took the use of a subtree above one of its limits,
// which refused nothing: a soft one, or a hard one that is not enforced.
type Excess struct {
	Path  string // of the subtree
	Limit string // the limit's name in the text of the limits
	Used  int64  // znodes or bytes
	Max   int64  // what the limit says
}

// addExcesses notes the limits that were kept before the transaction and are not any more.
func (a *change) addExcesses() {
	for i := range a.delta.Nodes {
		path := a.delta.Nodes[i].Path
		if !strings.HasPrefix(path, QuotaRoot+"/") {
			continue
		}
		dir, name := Split(path)
		usagePath, limitsPath := Join(dir, usageName), Join(dir, limitsName)
		if dir == QuotaRoot || name != usageName && (name != limitsName || a.nodeEffect(usagePath) >= 0) {
			continue // no quota; or the usage has changed, too, and is an effect of its own
		}
		before := exceeded(a.view.Node(usagePath), a.view.Node(limitsPath))
		for limit, x := range exceeded(a.node(usagePath), a.node(limitsPath)) {
			if x != (Excess{}) && before[limit] == (Excess{}) {
				x.Path = dir[len(QuotaRoot):]
				a.delta.Excesses = append(a.delta.Excesses, x)
			}
		}
	}
}

// exceeded tells which limits a use is above; those that it keeps are zero.
func exceeded(usage, limits *Node) (list [4]Excess) {
	if usage == nil || limits == nil {
		return list
	}
	used, limit := parseTrack(usage.Data), parseTrack(limits.Data)
	for i, x := range [...]Excess{
		{Limit: "count", Used: used.count, Max: limit.count},
		{Limit: "bytes", Used: used.bytes, Max: limit.bytes},
		{Limit: "countHardLimit", Used: used.count, Max: limit.countHard},
		{Limit: "byteHardLimit", Used: used.bytes, Max: limit.bytesHard},
	} {
		if x.Max >= 0 && x.Used > x.Max {
			list[i] = x
		}
	}
	return list
}

// isUsage reports whether path is a quota's usage znode.
func isUsage(path string) bool {
	return strings.HasPrefix(path, QuotaRoot+"/") && strings.HasSuffix(path, "/"+usageName)
}

// countUsage is the data of a new usage znode: what its subtree holds now, whatever
// the creator gave.
func (a *change) countUsage(path string) []byte {
	prefix := strings.TrimSuffix(path[len(QuotaRoot):], "/"+usageName)
	if prefix == "" {
		prefix = Root
	}
	count, bytes := a.view.Subtree(prefix)
	for _, e := range a.delta.Nodes { // and what this transaction changed in it
		if !under(e.Path, prefix) {
			continue
		}
		if e.Node != nil {
			count, bytes = count+1, bytes+int64(len(e.Node.Data))
		}
		if e.Prev != nil {
			count, bytes = count-1, bytes-int64(len(e.Prev.Data))
		}
	}
	return formatUsage(count, bytes)
}
