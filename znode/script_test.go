package znode_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/znode"
)

// TestScripts pins every rule of the model as readable scripts: each line of a "run"
// block is one command of the language below, and its outcome, events and counters
// are compared with what is written under it (-rewrite regenerates, review the
// diff). Verify runs after every command.
//
//	new                               fresh tree, time 0, no rules, the server asks
//	time MS                           the leader's clock from now on
//	rules [nottl] [enforce] [full]    the leader's settings from now on
//	as SESSION [SCHEME:ID]...         who asks from now on; session 0 is the server
//	on CONNECTION                     from where: a connection of process 1, 0 is none
//	open [MS] [password=P] [seen=N] | resume SESSION [password=P] [seen=N]
//	close SESSION | expire SESSION [owner=CONNECTION] | reap PATH
//	create PATH [data=D] [acl=A] [seq] [ephemeral] [container] [ttl=MS] [stat]
//	delete PATH [v=N] | set PATH data=D [v=N] | setacl PATH acl=A [v=N] | check PATH [v=N]
//	multi, then indented operations   one transaction
//	stat PATH | ls PATH | get PATH | getacl PATH | tree [PATH]
//	hook PATH [version=N] [aversion=N] [created=N]   sets counters as an import would
//
// Words may be quoted as in Go; D is null for null.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := newScript()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd != "run" {
				t.Fatalf("%s: unknown directive %q", d.Pos, d.Cmd)
			}
			return s.run(t, d.Pos, d.Input)
		})
	})
}

// script is the state of one script file.
type script struct {
	tree  *znode.Tree
	stamp znode.Stamp
	who   session.ID
	owner session.Owner
	auth  []znode.Identity
}

func newScript() *script { return &script{tree: znode.NewTree()} }

func (s *script) run(t *testing.T, pos, input string) string {
	var out strings.Builder
	lines := strings.Split(input, "\n")
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		if strings.HasPrefix(line, "#") {
			continue
		}
		words, err := splitWords(line)
		if err != nil {
			t.Fatalf("%s: %q: %v", pos, line, err)
		}
		var ops []znode.Op
		for words[0] == "multi" && i+1 < len(lines) && strings.HasPrefix(lines[i+1], " ") {
			i++
			sub, err := splitWords(lines[i])
			if err != nil {
				t.Fatalf("%s: %q: %v", pos, lines[i], err)
			}
			ops = append(ops, parseOp(t, sub))
		}
		answer := s.command(t, words, ops)
		out.WriteString(strings.TrimRight(line+" -> "+answer, " \n") + "\n")
		for _, p := range znode.Verify(s.tree) {
			out.WriteString("  PROBLEM " + p.String() + "\n")
		}
	}
	return out.String()
}

func (s *script) command(t *testing.T, words []string, ops []znode.Op) string {
	arg := ""
	if len(words) > 1 {
		arg = words[1]
	}
	switch words[0] {
	case "new":
		*s = *newScript()
	case "time":
		s.stamp.TimeMs = number(t, arg)
	case "rules":
		s.stamp.Rules = znode.Rules{}
		for _, w := range words[1:] {
			switch w {
			case "nottl":
				s.stamp.Rules.NoTTL = true
			case "enforce":
				s.stamp.Rules.EnforceQuota = true
			case "full":
				s.stamp.Rules.Full = true
			}
		}
	case "as":
		s.who, s.auth = session.ID(number(t, arg)), nil
		for _, w := range words[2:] {
			scheme, id, _ := strings.Cut(w, ":")
			s.auth = append(s.auth, znode.Identity{Scheme: scheme, ID: id})
		}
	case "on":
		s.owner = parseOwner(t, arg)
	case "stat", "ls", "get", "getacl", "tree", "hook":
		return s.look(t, words[0], arg, words[1:])
	case "multi":
		return s.apply(&znode.Multi{Ops: ops})
	default:
		return s.apply(parseOp(t, words))
	}
	return "ok"
}

func (s *script) apply(op znode.Op) string {
	txn := &znode.Txn{Session: s.who, Owner: s.owner, Auth: s.auth, Op: op}
	_, resumes := op.(*znode.ResumeSession)
	if resumes {
		txn.Session = 0
	}
	r, d := s.tree.Apply(s.stamp, txn)
	out := formatResult(&r)
	for _, c := range d.Changes {
		out += " [" + changeNames[c.Type] + " " + c.Path + "]"
	}
	for _, x := range d.Excesses {
		out += fmt.Sprintf(" [excess %s %s %d > %d]", x.Path, x.Limit, x.Used, x.Max)
	}
	if d.Zxid == 0 && (len(d.Nodes)+len(d.Children)+len(d.Changes) > 0 || len(d.Sessions) > 0 && !resumes) {
		out += " EFFECTS WITHOUT A ZXID"
	}
	for _, sub := range r.Sub {
		out += "\n    " + formatResult(&sub)
	}
	return out
}

var changeNames = map[znode.EventType]string{
	znode.EventCreated: "created", znode.EventDeleted: "deleted", znode.EventDataChanged: "changed",
}

func formatResult(r *znode.Result) string {
	out := fmt.Sprintf("zxid=%d", r.Zxid)
	if r.Err != znode.OK {
		out += " " + r.Err.Error()
	}
	switch r.Kind {
	case znode.ResultCreate:
		out += fmt.Sprintf(" create %q", r.Path)
	case znode.ResultCreateStat:
		out += fmt.Sprintf(" create2 %q %s", r.Path, formatStat(r.Stat))
	case znode.ResultDelete:
		out += " delete"
	case znode.ResultSetData:
		out += " set " + formatStat(r.Stat)
	case znode.ResultSetACL:
		out += " setacl " + formatStat(r.Stat)
	case znode.ResultCheck:
		out += " check"
	case znode.ResultMulti:
		out += " multi"
	case znode.ResultSession:
		out += fmt.Sprintf(" session=%d timeout=%d", int64(r.Session.ID), r.Session.TimeoutMs)
		if o := r.Session.Owner; o != (session.Owner{}) {
			out += fmt.Sprintf(" owner=%d", o.Bind)
		}
	}
	return out
}

// formatStat leaves out what is zero, except the counters of versions.
func formatStat(s znode.Stat) string {
	out := fmt.Sprintf("{cz=%d mz=%d pz=%d v=%d cv=%d av=%d", s.Czxid, s.Mzxid, s.Pzxid, s.Version, s.Cversion, s.Aversion)
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"ct", s.Ctime}, {"mt", s.Mtime}, {"owner", int64(s.EphemeralOwner)},
		{"len", int64(s.DataLength)}, {"n", int64(s.NumChildren)},
	} {
		if f.value != 0 {
			out += fmt.Sprintf(" %s=%d", f.name, f.value)
		}
	}
	return out + "}"
}

func (s *script) look(t *testing.T, verb, path string, words []string) string {
	if verb == "tree" {
		return s.printTree(path)
	}
	n := s.tree.Node(path)
	if n == nil {
		return znode.NoNode.Error()
	}
	switch verb {
	case "stat":
		return formatStat(znode.StatOf(n, s.tree.Children(path)))
	case "ls":
		return fmt.Sprintf("%q", s.tree.List(path))
	case "get":
		return formatData(n.Data)
	case "getacl":
		if s.who != 0 && !znode.AccessReadACL.Allowed(n.ACL, s.auth) {
			return znode.NoAuth.Error()
		}
		return formatACL(znode.MaskACL(n.ACL, s.auth))
	}
	return s.hook(t, path, *n, words[1:])
}

// formatACL shows permissions as numbers where letters can't.
func formatACL(acl []znode.ACL) string {
	texts := make([]string, len(acl))
	for i, e := range acl {
		if texts[i] = e.String(); e.Perms&^znode.PermAll != 0 {
			texts[i] += "+" + strconv.Itoa(int(e.Perms&^znode.PermAll))
		}
	}
	return strings.Join(texts, ",")
}

func (s *script) hook(t *testing.T, path string, n znode.Node, words []string) string {
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "version":
			n.Version = int32(number(t, value))
		case "aversion":
			n.Aversion = int32(number(t, value))
		case "created":
			c := s.tree.Children(path)
			c.Created = number(t, value)
			if c.Pzxid == 0 {
				c.Pzxid = s.tree.LastZxid()
			}
			s.tree.SetChildren(path, c)
		}
	}
	s.tree.SetNode(path, &n)
	return "ok"
}

// printTree shows everything below path but the system znodes.
func (s *script) printTree(below string) string {
	var out strings.Builder
	s.tree.All(func(path string, n *znode.Node, c znode.Children) bool {
		if strings.HasPrefix(path, below) && (below != "" || !strings.HasPrefix(path, "/zookeeper")) {
			fmt.Fprintf(&out, "\n    %q %s %s", path, formatData(n.Data), formatStat(znode.StatOf(n, c)))
		}
		return true
	})
	return out.String()
}

func formatData(data []byte) string {
	if data == nil {
		return "null"
	}
	return strconv.Quote(string(data))
}
