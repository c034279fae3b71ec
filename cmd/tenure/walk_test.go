package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// hugeParent lists so many children with names of 40 digits.
type hugeParent struct{ count, lists int }

func (h *hugeParent) List(_ context.Context, _ string, p wire.List) (wire.ListReply, error) {
	h.lists++
	first := 0
	if p.After != "" {
		n, err := strconv.Atoi(p.After)
		if err != nil {
			return wire.ListReply{}, err
		}
		first = n + 1
	}
	end := min(first+int(p.Limit), h.count)
	reply := wire.ListReply{More: end < h.count}
	for i := first; i < end; i++ {
		reply.Names = append(reply.Names, fmt.Sprintf("%040d", i))
	}
	return reply, nil
}

// Goal: "ls" of 100,000 children needs pages, not one huge reply. Method: a parent that
// answers page by page; all names come out once and in order, and the last is marked.
func TestC071ListsHundredThousandChildrenInPages(t *testing.T) {
	h := &hugeParent{count: 100_000}
	seen := 0
	for c, err := range children(t.Context(), h, "/big", false) {
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("%040d", seen); c.name != want || c.last != (seen == h.count-1) {
			t.Fatalf("child %d is %q, last %v; want %q", seen, c.name, c.last, want)
		}
		seen++
	}
	if seen != h.count || h.lists != h.count/pageSize {
		t.Fatalf("%d children in %d requests, want %d in %d", seen, h.lists, h.count, h.count/pageSize)
	}
}

// Goal: names of every script are listed unchanged, and NFC and NFD stay two nodes.
// Method: the names that the data model accepts go through the printing of "ls".
func TestC003NamesOfAnyScriptAreListedUnchanged(t *testing.T) {
	names := []string{"中文", "\u00e9", "e\u0301", "x\u00a0y"}
	f := newFakeTree(t)
	f.create("/u", "")
	for _, name := range names {
		f.create("/u/"+name, "")
	}
	a, stdout, _ := testApp(outputTable)
	l := listCommand{app: a}
	for c, err := range children(t.Context(), f, "/u", false) {
		if err != nil {
			t.Fatal(err)
		}
		if err := l.print(c.name, c); err != nil {
			t.Fatal(err)
		}
	}
	a.out.Flush()
	slices.Sort(names)
	if want := strings.Join(names, "\n") + "\n"; stdout.String() != want {
		t.Fatalf("printed %q, want %q", stdout, want)
	}
}

// Goal: a name that the server refuses is refused here with the rule. Method: an emoji
// and U+FFF0 as the path of each verb that takes one.
func TestC003RefusedNamesNameTheRule(t *testing.T) {
	for _, path := range []string{"/u/🐂", "/u/\ufff0"} {
		for _, args := range [][]string{{"create", path}, {"get", path}, {"ls", path}, {"rm", path}} {
			a, _, stderr := testRun(t, args...)
			if a != exitUsage || !strings.Contains(stderr, "must ") {
				t.Errorf("%q: exit %d, %q", args, a, stderr)
			}
		}
	}
}

// Goal: a walk leaves out what may not be read or vanishes, and tells of the former.
// Method: a denied subtree between two others.
func TestWalkGoesOnAfterADeniedSubtree(t *testing.T) {
	f := newFakeTree(t)
	for _, path := range []string{"/a", "/a/x", "/b", "/b/secret", "/c", "/c/y"} {
		f.create(path, "")
	}
	f.denied["/b"] = true
	var visited, denied []string
	w := walker{lister: f,
		visit:  func(path string, _ child, _ int) error { visited = append(visited, path); return nil },
		denied: func(path string, _ error) { denied = append(denied, path) },
	}
	if err := w.walk(t.Context(), "/"); err != nil {
		t.Fatal(err)
	}
	visited = slices.DeleteFunc(visited, func(p string) bool { return strings.HasPrefix(p, "/zookeeper") })
	if want := []string{"/a", "/a/x", "/b", "/c", "/c/y"}; !slices.Equal(visited, want) || !slices.Equal(denied, []string{"/b"}) {
		t.Fatalf("visited %q, denied %q; want %q and /b", visited, denied, want)
	}
	w.denied = nil
	if err := w.walk(t.Context(), "/"); !errors.Is(err, znode.NoAuth) {
		t.Fatalf("without denied: %v, want NoAuth", err)
	}
}

// Goal: the drawing of a tree. Method: one tree, its expected picture, and a depth.
func TestTreeDrawsBranches(t *testing.T) {
	f := newFakeTree(t)
	f.pageMax = 1 // the last child is known across pages
	for _, path := range []string{"/a", "/a/b", "/a/b/c", "/a/d"} {
		f.create(path, "")
	}
	for _, test := range []struct {
		depth int
		want  string
	}{
		{0, "/a\n├── b\n│   └── c\n└── d\n\n3 nodes below\n"},
		{1, "/a\n├── b\n└── d\n\n2 nodes below\n"},
	} {
		a, stdout, _ := testApp(outputTable)
		c := treeCommand{app: a, depth: test.depth}
		if err := c.run(context.Background(), f, "/a"); err != nil {
			t.Fatal(err)
		}
		a.out.Flush()
		if stdout.String() != test.want {
			t.Errorf("depth %d:\n%swant\n%s", test.depth, stdout, test.want)
		}
	}
}

// Goal: completion offers what goes on as typed, and silence elsewhere. Method: tables
// over one tree with names that are prefixes of each other.
func TestCompletions(t *testing.T) {
	f := newFakeTree(t)
	for _, path := range []string{"/app", "/app/db", "/apple", "/b", "/app/x y"} {
		f.create(path, "")
	}
	for typed, want := range map[string][]string{
		"/ap":     {"/app", "/apple"},
		"/app":    {"/app", "/apple"},
		"/app/":   {"/app/db", "/app/x y"},
		"/app/d":  {"/app/db"},
		"/none":   nil,
		"/none/x": nil,
		"app":     nil,
	} {
		got, _ := completions(t.Context(), f, typed)
		if !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", typed, got, want)
		}
	}
}
