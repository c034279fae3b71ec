package wire

import (
	"strconv"

	"github.com/tenure-dev/tenure/znode"
)

// opNames are the operations' names in JSON, logs and metrics.
var opNames = map[Op]string{
	OpCreate: "create", OpCreate2: "create2", OpCreateContainer: "createContainer",
	OpCreateTTL: "createTTL", OpDelete: "delete", OpExists: "exists", OpGetData: "get",
	OpSetData: "set", OpGetACL: "getACL", OpSetACL: "setACL", OpGetChildren: "childNames",
	OpGetChildren2: "children", OpSync: "sync", OpPing: "ping", OpCheck: "check",
	OpMulti: "multi", OpMultiRead: "multiRead", OpReconfig: "reconfig",
	OpCheckWatches: "checkWatches", OpRemoveWatches: "removeWatches",
	OpDeleteContainer: "deleteContainer", OpAuth: "auth", OpSASL: "sasl",
	OpSetWatches: "setWatches", OpSetWatches2: "setWatches2", OpAddWatch: "watch",
	OpGetEphemerals: "ephemerals", OpGetAllChildrenNumber: "countDescendants",
	OpWhoAmI: "whoAmI", OpCloseSession: "close", OpWith: "with", OpRewatch: "rewatch",
	OpRenew: "renew", OpList: "list", OpSessions: "sessions", OpStatus: "status",
	OpKillSession: "killSession", OpMembers: "members", OpChangeMembers: "changeMembers",
	OpTransferLead: "transferLead",
}

// String returns the operation's name, for logs and metrics; "op 99" for a code that
// has none. The set of names is closed, so it is fit for a metric's label.
func (op Op) String() string {
	if name, ok := opNames[op]; ok {
		return name
	}
	return "op " + strconv.Itoa(int(op))
}

// OpOf returns the operation that carries the change w: a pointer to Create (by its
// kind and WantStat), Delete, SetData, SetACL, Check or Multi. It panics for the
// changes that only the server asks for.
func OpOf(w znode.Op) Op {
	switch w := w.(type) {
	case *znode.Create:
		switch {
		case w.Mode.Kind == znode.Container:
			return OpCreateContainer
		case w.Mode.Kind == znode.TTL:
			return OpCreateTTL
		case w.WantStat:
			return OpCreate2
		}
		return OpCreate
	case *znode.Delete:
		return OpDelete
	case *znode.SetData:
		return OpSetData
	case *znode.SetACL:
		return OpSetACL
	case *znode.Check:
		return OpCheck
	case *znode.Multi:
		return OpMulti
	}
	panic("wire: no operation carries " + typeName(w))
}

// eventNames are JSON's names of the types of event.
var eventNames = map[znode.EventType]string{
	znode.EventCreated: "created", znode.EventDeleted: "deleted",
	znode.EventDataChanged: "dataChanged", znode.EventChildrenChanged: "childrenChanged",
	EventGap: "gap",
}

// modeNames are JSON's names of what a create asks for.
var modeNames = map[znode.Mode]string{
	{Kind: znode.Persistent}:                   "persistent",
	{Kind: znode.Persistent, Sequential: true}: "persistent-sequential",
	{Kind: znode.Ephemeral}:                    "ephemeral",
	{Kind: znode.Ephemeral, Sequential: true}:  "ephemeral-sequential",
	{Kind: znode.Container}:                    "container",
	{Kind: znode.Container, Sequential: true}:  "container-sequential",
	{Kind: znode.TTL}:                          "ttl",
	{Kind: znode.TTL, Sequential: true}:        "ttl-sequential",
}

// watcherNames are JSON's names of WatcherType.
var watcherNames = map[WatcherType]string{
	WatcherChildren: "children", WatcherData: "data", WatcherAny: "any",
	WatcherPersistent: "persistent", WatcherRecursive: "recursive",
}

var (
	eventTypes   = inverse(eventNames)
	modes        = inverse(modeNames)
	watcherTypes = inverse(watcherNames)
)

// inverse returns the map from names to what they name.
func inverse[K comparable](names map[K]string) map[string]K {
	m := make(map[string]K, len(names))
	for k, name := range names {
		m[name] = k
	}
	return m
}

// internScheme returns b as a string without allocating for the words that nearly
// all access lists are made of.
func internScheme(b []byte) string {
	switch string(b) {
	case "world":
		return "world"
	case "anyone":
		return "anyone"
	case "auth":
		return "auth"
	case "digest":
		return "digest"
	case "ip":
		return "ip"
	case "sasl":
		return "sasl"
	case "x509":
		return "x509"
	case "super":
		return "super"
	}
	return string(b)
}

// isOpen reports whether acl is exactly znode.OpenACL, which all encodings shorten.
func isOpen(acl []znode.ACL) bool {
	return len(acl) == 1 && acl[0] == znode.ACL{Perms: znode.PermAll, Scheme: "world", ID: "anyone"}
}

// kindName formats a kind of result for a panic.
func kindName(k znode.ResultKind) string { return strconv.Itoa(int(k)) }
