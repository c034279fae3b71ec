package znode_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/znode"
)

// TestValidatePath goes over every rule with the values on both sides of it.
func TestValidatePath(t *testing.T) {
	for _, path := range []string{
		"/", "/a", "/a/b", "/...", "/.a", "/a.", "/..a", "/ ", "/a b", "/%2F", "/~", "/\u00a0", "/\ud7ff", "/\uf900", "/\uffef",
		"/" + strings.Repeat("x", 1<<16),
	} {
		if err := znode.ValidatePath(path); err != nil {
			t.Errorf("%.20q: %v", path, err)
		}
	}
	for path, rule := range map[string]string{
		"": "empty", "a": "start with /", "a/b": "start with /", "/a/": "end with /", "//": "end with /", "//a": "empty element",
		"/a//b": "empty element", "/.": "element . or ..", "/..": "element . or ..", "/a/./b": "element . or ..", "/a/../b": "element . or ..",
		"/a\x00": "control", "/\x1f": "control", "/\x7f": "control", "/\u0080": "control", "/\u009f": "control",
		"/\ue000": "private use", "/\uf8ff": "private use", "/\ufff0": "U+FFF0", "/\uffff": "U+FFF0", "/\xff": "UTF-8",
		"/\xed\xa0\x80": "UTF-8", "/\U00010000": "above U+FFFF", "/a🐂": "above U+FFFF",
	} {
		err := znode.ValidatePath(path)
		var pathErr *znode.PathError
		if !errors.Is(err, znode.BadArguments) || !errors.As(err, &pathErr) || pathErr.Path != path ||
			!strings.Contains(err.Error(), rule) || !strings.Contains(err.Error(), fmt.Sprintf("%q", path)) {
			t.Errorf("%q: %v, want the rule %q", path, err, rule)
		}
	}
}

// TestSplitJoin takes paths apart and puts them together.
func TestSplitJoin(t *testing.T) {
	for path, want := range map[string][2]string{"/a": {"/", "a"}, "/a/b": {"/a", "b"}, "/a/b/c d": {"/a/b", "c d"}} {
		parent, name := znode.Split(path)
		if parent != want[0] || name != want[1] || znode.Join(parent, name) != path {
			t.Errorf("%s: %q, %q, joined %q", path, parent, name, znode.Join(parent, name))
		}
	}
	for _, path := range []string{"/", "", "a"} {
		if parent, name := znode.Split(path); parent != "" || name != "" {
			t.Errorf("%q: %q, %q", path, parent, name)
		}
	}
}

// FuzzPath gives any path to ValidatePath and to every operation: nothing may panic,
// what is refused must leave no trace, and whatever is stored must be valid.
func FuzzPath(f *testing.F) {
	for _, path := range []string{"", "/", "/a", "//", "/a/", "/.", "/\xff", "/🐂", "/zookeeper/quota/zookeeper_stats", "/zookeeper/quota/a//zookeeper_stats"} {
		f.Add(path, true)
	}
	f.Fuzz(func(t *testing.T, path string, seq bool) {
		valid := znode.ValidatePath(path) == nil
		tree := znode.NewTree()
		ops := []znode.Op{
			&znode.Create{Path: path, ACL: znode.OpenACL, Mode: znode.Mode{Sequential: seq}},
			&znode.SetData{Path: path, Version: -1}, &znode.SetACL{Path: path, ACL: znode.OpenACL, Version: -1},
			&znode.Multi{Ops: []znode.Op{&znode.Check{Path: path, Version: -1}}},
			&znode.Reap{Path: path}, &znode.Delete{Path: path, Version: -1},
		}
		for _, op := range ops {
			r, d := tree.Apply(znode.Stamp{}, &znode.Txn{Op: op})
			if r.Err != znode.OK && d.Zxid != 0 {
				t.Errorf("%T %q: %v with zxid %d", op, path, r.Err, d.Zxid)
			}
			if r.Err == znode.OK && !valid && !seq {
				t.Errorf("%T %q: succeeded", op, path)
			}
		}
		for _, p := range znode.Verify(tree) {
			t.Error(p)
		}
	})
}

// TestErrorNames checks that every code from the table has its own name.
func TestErrorNames(t *testing.T) {
	if got := znode.NoNode.Error(); got != "NoNode (-101)" {
		t.Errorf("NoNode prints as %s", got)
	}
	if got := znode.Error(-999).Error(); got != "Unknown (-999)" {
		t.Errorf("-999 prints as %s", got)
	}
	seen := map[string]znode.Error{}
	for code := znode.Error(0); code >= -130; code-- {
		name := code.Name()
		if other, ok := seen[name]; ok && name != "Unknown" {
			t.Errorf("%d and %d are both %s", code, other, name)
		}
		seen[name] = code
	}
	if len(seen) != 37 { // 36 codes and Unknown
		t.Errorf("%d names", len(seen))
	}
	if !errors.Is(fmt.Errorf("delete /a: %w", znode.NotEmpty), znode.NotEmpty) {
		t.Error("a wrapped code is not found by errors.Is")
	}
}
