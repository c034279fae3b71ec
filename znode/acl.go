package znode

// Permission bits of an ACL entry.
const (
	PermRead   int32 = 1
	PermWrite  int32 = 2
	PermCreate int32 = 4
	PermDelete int32 = 8
	PermAdmin  int32 = 16
	PermAll    int32 = 31
)

// ACL is one entry of an access list. Unknown permission bits are kept as given.
type ACL struct {
	Perms  int32  `json:"perms"`
	Scheme string `json:"scheme"`
	ID     string `json:"id"`
}

// Identity is one of the identities of a connection: its ip address, and what
// addauth added. Scheme "super" passes every check.
type Identity struct {
	Scheme string `json:"scheme"`
	ID     string `json:"id"`
}

// OpenACL lets everybody do everything: world:anyone:cdrwa.
var OpenACL = []ACL{{Perms: PermAll, Scheme: "world", ID: "anyone"}}
