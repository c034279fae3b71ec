package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/znode"
)

// exportOf exports root of f.
func exportOf(t *testing.T, f *fakeTree, root string, document bool) (text, notes string) {
	t.Helper()
	a, stdout, stderr := testApp(outputTable)
	e := exporter{app: a, tree: f, root: root, document: document}
	if err := e.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	return stdout.String(), stderr.String()
}

// importInto imports text at root of f.
func importInto(t *testing.T, f *fakeTree, root, text string, overwrite, dryRun bool) (i *importer, conflicts []string, err error) {
	t.Helper()
	records, err := newRecordReader(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	i = &importer{tree: f, root: root, overwrite: overwrite, dryRun: dryRun,
		conflict: func(path string) { conflicts = append(conflicts, path) }}
	err = importAll(t.Context(), i, records)
	return i, conflicts, err
}

// mixedTree has every kind of node, data and access list that an export keeps.
func mixedTree(t *testing.T) *fakeTree {
	f := newFakeTree(t)
	f.create("/a", "text <&> 中文")
	f.create("/a/empty", "")
	f.apply(&znode.Create{Path: "/a/null", ACL: znode.OpenACL})
	f.create("/a/binary", "\x00\xff")
	f.apply(&znode.Create{Path: "/a/closed", ACL: []znode.ACL{{Perms: znode.PermRead, Scheme: "ip", ID: "10.0.0.0/8"}}})
	f.apply(&znode.Create{Path: "/a/container", ACL: znode.OpenACL, Mode: znode.Mode{Kind: znode.Container}})
	f.create("/a/container/child", "")
	f.apply(&znode.Create{Path: "/a/ttl", Data: []byte("t"), ACL: znode.OpenACL, Mode: znode.Mode{Kind: znode.TTL}, TTLMs: 90_001})
	f.apply(&znode.Create{Path: "/a/container/longest", ACL: znode.OpenACL, Mode: znode.Mode{Kind: znode.TTL}, TTLMs: znode.TTLMaxMs})
	for i := range 150 { // more than are read at once
		f.create(fmt.Sprintf("/a/empty/%03d", i), strings.Repeat("x", i))
	}
	f.create("/a/empty/000/deep", "d")
	return f
}

// Goal: an export and its import give the same subtree elsewhere, in both forms, null
// and empty data and all kinds of nodes told apart. Method: export, import at another
// path, export again, and compare the kinds.
func TestC005ExportAndImportKeepEverything(t *testing.T) {
	for _, document := range []bool{false, true} {
		f := mixedTree(t)
		text, notes := exportOf(t, f, "/a", document)
		if !strings.Contains(notes, "exported 160 nodes") {
			t.Errorf("standard error: %q", notes)
		}
		if document && !json.Valid([]byte(text)) {
			t.Errorf("not one JSON document: %q", text)
		}
		i, conflicts, err := importInto(t, f, "/copy", text, false, false)
		if err != nil || i.created != 160 || len(conflicts) > 0 {
			t.Fatalf("created %d, conflicts %q, %v; want 160", i.created, conflicts, err)
		}
		if again, _ := exportOf(t, f, "/copy", document); again != text {
			t.Errorf("the copy is exported as\n%s\nwant\n%s", again, text)
		}
		for path, want := range map[string]znode.Lifetime{
			"/copy": {}, "/copy/container": {Kind: znode.Container}, "/copy/ttl": {Kind: znode.TTL, TTLMs: 90_001},
			"/copy/container/longest": {Kind: znode.TTL, TTLMs: znode.TTLMaxMs}, "/copy/container/child": {},
		} {
			if got := f.tree.Node(path).Lifetime(); got != want {
				t.Errorf("%s is %+v, want %+v", path, got, want)
			}
		}
		if f.opsMax > importOpsMax {
			t.Errorf("a transaction of %d operations, the bound is %d", f.opsMax, importOpsMax)
		}
	}
}

// Goal: ephemeral nodes and the server's own are left out, and the former are counted.
// Method: an export of the root with a session's node in it.
func TestExportSkipsEphemeralsAndTheServersOwn(t *testing.T) {
	f := newFakeTree(t)
	opened := f.apply(&znode.OpenSession{TimeoutMs: 1000})
	r, delta := f.tree.Apply(znode.Stamp{}, &znode.Txn{Session: opened.Session.ID,
		Op: &znode.Create{Path: "/e", ACL: znode.OpenACL, Mode: znode.Mode{Kind: znode.Ephemeral}}})
	if r.Err != znode.OK {
		t.Fatal(r.Err)
	}
	f.tree.Update(&delta)
	f.create("/p", "data")
	text, notes := exportOf(t, f, "/", false)
	if want := "{\"path\":\"/\",\"data\":\"\"}\n{\"path\":\"/p\",\"data\":\"data\"}\n"; text != want {
		t.Errorf("exported %q, want %q", text, want)
	}
	if !strings.Contains(notes, "exported 2 nodes, skipped 1 ephemeral") {
		t.Errorf("standard error: %q", notes)
	}
	if text, notes = exportOf(t, f, "/e", true); text != "[\n]\n" || !strings.Contains(notes, "exported 0 nodes, skipped 1 ephemeral") {
		t.Errorf("an ephemeral node itself: %q, %q", text, notes)
	}
}

// recreatingTree deletes the nodes in become before they are first read, and creates
// them again as what stands there.
type recreatingTree struct {
	*fakeTree
	become map[string]*znode.Create
}

func (r *recreatingTree) GetACL(ctx context.Context, path string) ([]znode.ACL, znode.Stat, error) {
	if op := r.become[path]; op != nil {
		delete(r.become, path)
		r.apply(&znode.Delete{Path: path, Version: -1})
		r.apply(op)
	}
	return r.fakeTree.GetACL(ctx, path)
}

// Goal: a record is never made of two nodes that had one path after the other. Method: a
// node becomes a container of other data and list between two requests of the export.
func TestExportDoesNotMixNodes(t *testing.T) {
	f := newFakeTree(t)
	f.create("/n", "")
	f.create("/n/x", "old")
	r := &recreatingTree{f, map[string]*znode.Create{"/n/x": {Path: "/n/x", Data: []byte("new"), Mode: znode.Mode{Kind: znode.Container},
		ACL: []znode.ACL{{Perms: znode.PermRead, Scheme: "ip", ID: "10.0.0.0/8"}}}}}
	a, stdout, _ := testApp(outputTable)
	e := exporter{app: a, tree: r, root: "/n/x"}
	if err := e.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	const want = `{"path":"/","data":"new","acl":[{"perms":1,"scheme":"ip","id":"10.0.0.0/8"}],"mode":"container"}` + "\n"
	if stdout.String() != want {
		t.Errorf("exported %q, want %q", stdout, want)
	}
}

// Goal: what exists with other data is named and left alone, or replaced on request;
// a dry run says the same and changes nothing. Method: import over a changed copy.
func TestImportConflicts(t *testing.T) {
	const text = `{"path":"/","data":"1"}
{"path":"/same","data":"s"}
{"path":"/other","data":"new","acl":[{"perms":1,"scheme":"world","id":"anyone"}]}
{"path":"/new","base64":"AP8="}`
	for _, test := range []struct {
		overwrite, dryRun                  bool
		created, replaced, same, conflicts int
		other                              string
		exists                             bool
	}{
		{false, false, 1, 0, 2, 1, "old", true},
		{true, false, 1, 1, 2, 0, "new", true},
		{false, true, 1, 0, 2, 1, "old", false},
		{true, true, 1, 1, 2, 0, "old", false},
	} {
		f := newFakeTree(t)
		f.create("/c", "1")
		f.create("/c/same", "s")
		f.create("/c/other", "old")
		i, conflicts, err := importInto(t, f, "/c", text, test.overwrite, test.dryRun)
		if err != nil {
			t.Fatal(err)
		}
		if i.created != test.created || i.replaced != test.replaced || i.same != test.same || i.conflicts != test.conflicts {
			t.Errorf("%+v: created %d, replaced %d, same %d, conflicts %d", test, i.created, i.replaced, i.same, i.conflicts)
		}
		if test.conflicts == 1 && !slices.Equal(conflicts, []string{"/c/other"}) {
			t.Errorf("%+v: named %q", test, conflicts)
		}
		other := f.tree.Node("/c/other")
		if string(other.Data) != test.other || (f.tree.Node("/c/new") != nil) != test.exists {
			t.Errorf("%+v: /c/other has %q, /c/new exists: %v", test, other.Data, f.tree.Node("/c/new") != nil)
		}
		if replaced := other.ACL[0].Perms == znode.PermRead; replaced != (test.other == "new") {
			t.Errorf("%+v: access list of /c/other replaced: %v", test, replaced)
		}
	}
}

// Goal: wrong input is a usage error that names the record and the rule, and records
// before it are imported. Method: a table of texts behind a good record.
func TestImportRefusesWrongRecords(t *testing.T) {
	const good = `{"path":"/","data":"1"}` + "\n"
	for text, want := range map[string]string{
		`{"path":"x"}`:                             `record 2: path "x" must start with /`,
		`{"path":"/a/"}`:                           "must not end with /",
		`{"path":"/a","mode":"ephemeral"}`:         "an ephemeral node would be gone",
		`{"path":"/a","mode":"odd"}`:               `"mode" "odd"`,
		`{"path":"/a","mode":"ttl","ttl":"x"}`:     `"ttl" "x"`,
		`{"path":"/a","data":"x","base64":"eA=="}`: "only one may be given",
		`{"path":"/a","base64":"!"}`:               "record 2: illegal base64",
		`{"path":"/a","typo":1}`:                   `unknown field "typo"`,
		`{"path":"/a"`:                             "the input ends in record 2: it is not complete",
		`{"path":"/a","data":"` + strings.Repeat("x", recordMax+1<<20): "longer than",
		`nonsense`: "record 2: invalid character",
	} {
		f := newFakeTree(t)
		i, _, err := importInto(t, f, "/c", good+text, false, false)
		if exitCode(err) != exitUsage || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %.200v; want a usage error with %q", text, err, want)
		}
		if i.created != 1 || f.tree.Node("/c") == nil {
			t.Errorf("%.60s: the record before it was not imported", text)
		}
	}
	for text, want := range map[string]string{
		`[{"path":"/"}`:   "the input ends in record 1: it is not complete",
		`[{"path":"/"},`:  "the input ends in record 2: it is not complete",
		`[{"path":"/"}]x`: "there is more behind the closing ]",
	} {
		_, _, err := importInto(t, newFakeTree(t), "/c", text, false, false)
		if exitCode(err) != exitUsage || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want a usage error with %q", text, err, want)
		}
	}
}

// Goal: a hidden digest is not exported in silence: nobody could log in by it. Method: a
// node whose list the server shows with the password hidden.
func TestExportWarnsOfHiddenDigests(t *testing.T) {
	f := newFakeTree(t)
	f.apply(&znode.Create{Path: "/h", ACL: []znode.ACL{{Perms: znode.PermAll, Scheme: "digest", ID: "user:x"}}})
	if f.tree.Node("/h") == nil {
		f.create("/h", "")
		n := *f.tree.Node("/h")
		n.ACL = []znode.ACL{{Perms: znode.PermAll, Scheme: "digest", ID: "user:x"}}
		f.tree.SetNode("/h", &n)
	}
	if _, notes := exportOf(t, f, "/h", false); !strings.Contains(notes, "1 access lists were shown with hidden passwords") {
		t.Errorf("standard error: %q", notes)
	}
}
