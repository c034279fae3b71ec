package differ

import (
	"bytes"
	"strings"

	"github.com/tenure-dev/tenure/znode"
)

// credentials are what sessions authenticate with.
var credentials = []string{"ann:one", "ann:two", "bob:one", "carl", "", ":", "dora:", ":none", "eve:a:b"}

// astral is a character that no path may have.
const astral = "\U0001F600"

// odd are paths that break a rule, or come close to it.
var odd = []string{
	"", "a", "~/", "~//a", "~/a//b", "~/./a", "~/a/.", "~/..", "~/...", "~/.a", "~/a/", "~/b/",
	"~/x\x00", "~/x\x01", "~/x\x1f", "~/x\x7f", "~/x\u0080", "~/x\u009f", "~/x\u00a0", "~/x y",
	"~/\ud7ff", "~/\ue000", "~/\uf8ff", "~/\uf900", "~/\uffef", "~/\ufff0", "~/" + astral, "~/é",
}

// shared are znodes that are there before anything else.
var shared = []string{"/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config", "/zookeeper/none"}

// path is where something may be written.
func (g *generator) path() string {
	switch g.weighted(1, 6, 30, 24, 12, 6, 4) {
	case 0:
		return "~"
	case 1:
		return g.quotaPath()
	case 2:
		return "~/" + g.name()
	case 3:
		return "~/" + g.name() + "/" + g.name()
	case 4:
		return "~/" + g.name() + "/" + g.name() + "/" + g.name()
	case 5:
		return "~/" + g.name() + "/" + g.name() + g.number()
	}
	return pick(g, odd)
}

// ownPath is a path that no other play has to do with and that servers may answer with
// (astral-paths).
func (g *generator) ownPath() string {
	path := g.path()
	for isOutside(path) || strings.Contains(path, astral) {
		path = g.path()
	}
	return path
}

// watchedPath is a path that the session may watch.
func (g *generator) watchedPath() string {
	path := g.ownPath()
	for path[0] != home[0] || !g.mayWatch(path) { // not "a": see relative-path
		path = g.ownPath()
	}
	return path
}

// readPath is path, or what all plays share.
func (g *generator) readPath() string {
	if g.one(40) {
		return pick(g, shared)
	}
	return g.path()
}

func (g *generator) name() string { return string(rune('a' + g.IntN(g.names))) }

// number is a suffix that a sequential create may have given.
func (g *generator) number() string {
	return "00000000" + string([]byte{'0' + byte(g.IntN(2)), '0' + byte(g.IntN(10))})
}

func (g *generator) quotaPath() string {
	path := pick(g, []string{"~", "~/a", "~/b", "~/a/a"})
	return "/zookeeper/quota" + path + pick(g, []string{"", "", "/zookeeper_limits", "/zookeeper_stats", "/a"})
}

func (g *generator) version() int32 {
	if g.one(2) {
		return -1
	}
	return pick(g, []int32{0, 0, 0, 1, 1, 2, 3, -2, 1<<31 - 1})
}

func (g *generator) data() []byte {
	switch g.weighted(3, 3, 10, 1) {
	case 0:
		return nil
	case 1:
		return []byte{}
	case 2:
		return []byte("0123456789abcdef")[:1+g.IntN(15)]
	}
	return bytes.Repeat([]byte{0xfe}, 4000+g.IntN(300)) // around where the store changes its form
}

// entries are the entries of access lists, the invalid ones last.
var entries = []znode.ACL{
	{Perms: 31, Scheme: "world", ID: "anyone"}, {Perms: 1, Scheme: "world", ID: "anyone"},
	{Perms: 15, Scheme: "world", ID: "anyone"}, {Perms: 95, Scheme: "world", ID: "anyone"},
	{Perms: 30, Scheme: "world", ID: "anyone"}, {Perms: 0, Scheme: "world", ID: "anyone"},
	{Perms: 31, Scheme: "auth"}, {Perms: 16, Scheme: "auth", ID: "ignored"},
	{Perms: 31, Scheme: "digest", ID: znode.DigestID("ann", "one")}, {Perms: 13, Scheme: "digest", ID: znode.DigestID("bob", "one")},
	{Perms: 2, Scheme: "digest", ID: "a:b"}, {Perms: 2, Scheme: "digest", ID: ":b"},
	{Perms: 31, Scheme: "ip", ID: "127.0.0.1"}, {Perms: 7, Scheme: "ip", ID: "127.0.0.0/8"},
	{Perms: 31, Scheme: "ip", ID: "10.1.2.3"}, {Perms: 31, Scheme: "ip", ID: "1.2.3.4/0"},
	{Perms: 31, Scheme: "world", ID: "other"}, {Perms: 31, Scheme: "world"}, {Perms: 31, Scheme: "digest", ID: "a:"},
	{Perms: 31, Scheme: "digest", ID: "a:b:c"}, {Perms: 31, Scheme: "digest"}, {Perms: 31, Scheme: "digest", ID: ":"},
	{Perms: 31, Scheme: "ip", ID: "1.2.3"}, {Perms: 31, Scheme: "ip", ID: "1.2.3.4/33"}, {Perms: 31, Scheme: "ip", ID: "1.2.3.4/x"},
	{Perms: 31, Scheme: "ip", ID: "localhost"}, {Perms: 31, Scheme: "ip", ID: "1.2.3.4/-1"}, {Perms: 31, Scheme: "ip", ID: "256.1.1.1"},
	{Perms: 31, Scheme: "super", ID: ""}, {Perms: 31, Scheme: "foo", ID: "a"}, {Perms: 31, Scheme: "", ID: ""},
}

// valid is how many of entries most servers take from an authenticated session.
const valid = 16

func (g *generator) acl() []znode.ACL {
	switch g.weighted(70, 20, 1, 1, 3, 5) {
	case 0:
		return znode.OpenACL
	case 1:
		var list []znode.ACL
		for range 1 + g.IntN(3) {
			list = append(list, entries[g.IntN(valid)])
		}
		return list
	case 2:
		return nil
	case 3:
		return []znode.ACL{}
	case 5: // one's own, which others may only read, perhaps
		return append([]znode.ACL{entries[6+g.IntN(4)]}, entries[1:1+g.IntN(2)]...)
	}
	list := []znode.ACL{pick(g, entries)}
	if g.one(2) {
		list = append(list, pick(g, entries))
	}
	return list
}
