package main

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/znode"
)

// Goal: every form of a line means one operation. Method: a table of lines.
func TestParseTxnLines(t *testing.T) {
	create := func(c znode.Create) *znode.Create {
		c.WantStat = true
		if c.ACL == nil {
			c.ACL = znode.OpenACL
		}
		return &c
	}
	for line, want := range map[string]znode.Op{
		"check /a 3":              &znode.Check{Path: "/a", Version: 3},
		"check /a -1":             &znode.Check{Path: "/a", Version: -1},
		"\t create  /a  text ":    create(znode.Create{Path: "/a", Data: []byte("text")}),
		"create /a":               create(znode.Create{Path: "/a"}),
		`create /a ""`:            create(znode.Create{Path: "/a", Data: []byte{}}),
		"create -e -s /a/n- x":    create(znode.Create{Path: "/a/n-", Data: []byte("x"), Mode: znode.Mode{Kind: znode.Ephemeral, Sequential: true}}),
		"create -es /a/ x":        create(znode.Create{Path: "/a/", Data: []byte("x"), Mode: znode.Mode{Kind: znode.Ephemeral, Sequential: true}}),
		`set "/a b" "x\ty\x00é"`:  &znode.SetData{Path: "/a b", Data: []byte("x\ty\x00é"), Version: -1},
		`set '/a b' 'x\ty "z"' 7`: &znode.SetData{Path: "/a b", Data: []byte(`x\ty "z"`), Version: 7},
		"set /a it's":             &znode.SetData{Path: "/a", Data: []byte("it's"), Version: -1},
		"delete /a":               &znode.Delete{Path: "/a", Version: -1},
		"delete /a 0":             &znode.Delete{Path: "/a", Version: 0},

		`{"op":"check","path":"/a","version":3}`:                   &znode.Check{Path: "/a", Version: 3},
		`{"op":"set","path":"/a"}`:                                 &znode.SetData{Path: "/a", Version: -1},
		`{"op":"set","path":"/a","data":"","version":0}`:           &znode.SetData{Path: "/a", Data: []byte{}},
		`{"op":"set","path":"/a","base64":"AP8="}`:                 &znode.SetData{Path: "/a", Data: []byte{0, 255}, Version: -1},
		`{"op":"delete","path":"/a"}`:                              &znode.Delete{Path: "/a", Version: -1},
		`{"op":"create","path":"/a","mode":"container"}`:           create(znode.Create{Path: "/a", Mode: znode.Mode{Kind: znode.Container}}),
		`{"op":"create","path":"/a","mode":"ttl","ttl":"90s"}`:     create(znode.Create{Path: "/a", Mode: znode.Mode{Kind: znode.TTL}, TTLMs: 90_000}),
		`{"op":"create","path":"/a","sequential":true,"data":"é"}`: create(znode.Create{Path: "/a", Data: []byte("é"), Mode: znode.Mode{Sequential: true}}),
		`{"op":"create","path":"/a","acl":[{"perms":1,"scheme":"ip","id":"::1"}]}`: create(znode.Create{Path: "/a",
			ACL: []znode.ACL{{Perms: 1, Scheme: "ip", ID: "::1"}}}),
	} {
		got, err := parseTxn(strings.NewReader("# comment\n\n" + line + "\n"))
		if err != nil || len(got) != 1 || got[0].number != 3 || !reflect.DeepEqual(got[0].op, want) {
			t.Errorf("%s: %+v, %v; want %+v on line 3", line, got, err, want)
		}
	}
}

// Goal: a wrong line is a usage error that names the line and the rule. Method: a table
// of lines behind two good ones.
func TestParseTxnErrorsNameLineAndRule(t *testing.T) {
	for line, want := range map[string]string{
		"drop /a":                        `unknown operation "drop": want check, create, set or delete`,
		"check /a":                       "want check PATH VERSION",
		"check /a x":                     `version "x": want a number of 32 bits`,
		"check /a 2147483648":            `version "2147483648"`,
		"create -x /a":                   "unknown flag -x",
		"create -e":                      "want create [-e] [-s] PATH [DATA]",
		"create /a b c":                  "want create [-e] [-s] PATH [DATA]",
		"set /a":                         "want set PATH DATA [VERSION]",
		"delete":                         "want delete PATH [VERSION]",
		"delete a":                       `path "a" must start with /`,
		"delete /a/":                     "must not end with /",
		`set /a "b`:                      `a closing " is missing`,
		`set /a "\q"`:                    "an escape is not one of Go's",
		"set /a 'b":                      "a closing ' is missing",
		`set /a "b"c`:                    "a blank is missing behind a closing quote",
		`{"op":"set","path":"/a","x":1}`: `unknown field "x"`,
		`{"op":"set","path":"/a"} {}`:    "there is more behind the JSON object",
		`{"op":"set","path":"/a"`:        "unexpected EOF",
		`{"op":"drop","path":"/a"}`:      `op "drop"`,
		`{"op":"check","path":"/a"}`:     `check needs a "version"`,
		`{"op":"set","path":"/a","data":"x","base64":"eA=="}`: "only one may be given",
		`{"op":"create","path":"/a","mode":"odd"}`:            `"mode" "odd"`,
		`{"op":"create","path":"/a","mode":"ttl"}`:            `"ttl" "": want a duration`,
		`{"op":"create","path":"/a","ttl":"5m"}`:              `only for "mode":"ttl"`,
	} {
		_, err := parseTxn(strings.NewReader("delete /x\nset /y z\n" + line))
		if exitCode(err) != exitUsage || !strings.Contains(err.Error(), "line 3: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want a usage error for line 3 with %q", line, err, want)
		}
	}
}

// Goal: input is bounded. Method: too many operations, and one line that is too long.
func TestParseTxnIsBounded(t *testing.T) {
	for name, input := range map[string]string{
		"operations": strings.Repeat("delete /x\n", txnOpsMax+1),
		"bytes":      "set /x " + strings.Repeat("y", txnBytesMax),
	} {
		if _, err := parseTxn(strings.NewReader(input)); exitCode(err) != exitUsage || !strings.Contains(fmt.Sprint(err), "more than") {
			t.Errorf("%s: %v; want a usage error", name, err)
		}
	}
}

// Goal: a failed transaction names the line to blame and has its exit code. Method: a
// transaction whose second operation fails by the rules of the data model.
func TestTxnFailureNamesTheLine(t *testing.T) {
	f := newFakeTree(t)
	f.create("/a", "")
	f.create("/a/b", "")
	lines, err := parseTxn(strings.NewReader("check /a 0\n\ndelete /a\ncreate /c\n"))
	if err != nil {
		t.Fatal(err)
	}
	ops := make([]znode.Op, len(lines))
	for i := range lines {
		ops[i] = lines[i].op
	}
	results, err := f.Multi(t.Context(), ops...)
	if err == nil {
		t.Fatal("no error")
	}
	err = explainTxn("h:1", lines, results, err)
	const want = "txn on h:1: line 3, delete /a: node has children; nothing was changed"
	if err.Error() != want || exitCode(err) != exitConflict {
		t.Errorf("%q with exit code %d, want %q and 3", err, exitCode(err), want)
	}
}
