package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/client"
	"github.com/tenure-dev/tenure/znode"
)

// wideTree makes /t with directories of leaves, and /keep beside it.
func wideTree(t *testing.T, directories, leaves int) *fakeTree {
	f := newFakeTree(t)
	f.create("/keep", "")
	f.create("/t", "")
	for d := range directories {
		dir := fmt.Sprintf("/t/d%03d", d)
		f.create(dir, "")
		for l := range leaves {
			f.create(fmt.Sprintf("%s/l%04d", dir, l), "")
		}
	}
	return f
}

// Goal: a recursive delete removes all of a subtree and nothing else, in transactions
// of bounded size. Method: a tree of more nodes than one transaction takes.
func TestDeleteTreeIsBoundedAndComplete(t *testing.T) {
	f := wideTree(t, 7, 300)
	d := deleter{tree: f}
	if err := d.deleteTree(t.Context(), "/t"); err != nil {
		t.Fatal(err)
	}
	if want := 1 + 7 + 7*300; d.deleted != want {
		t.Errorf("deleted %d, want %d", d.deleted, want)
	}
	if got := f.paths(); !slices.Equal(got, []string{"/keep"}) {
		t.Errorf("left %q", got)
	}
	if f.opsMax > deleteOpsMax {
		t.Errorf("a transaction had %d operations, the bound is %d", f.opsMax, deleteOpsMax)
	}
}

// Goal: others who create and delete in the subtree meanwhile do not make it fail.
// Method: before some transactions a node appears under one to be deleted, with a child
// of its own, or one to be deleted vanishes.
func TestDeleteTreeCopesWithOthers(t *testing.T) {
	f := wideTree(t, 3, 400)
	f.beforeMulti = func(n int) error {
		switch n {
		case 1:
			f.create("/t/d000/new", "")
			f.create("/t/d000/new/child", "")
		case 2:
			f.apply(&znode.Delete{Path: "/t/d001/l0399", Version: -1})
		case 3:
			f.create("/t/d002/l0399/below", "")
		}
		return nil
	}
	d := deleter{tree: f}
	if err := d.deleteTree(t.Context(), "/t"); err != nil {
		t.Fatal(err)
	}
	if got := f.paths(); !slices.Equal(got, []string{"/keep"}) {
		t.Errorf("left %q", got)
	}
}

// Goal: somebody who creates children without end ends the delete with an error, not
// with a loop. Method: a new child before every transaction.
func TestDeleteTreeGivesUpOnEndlessCreates(t *testing.T) {
	f := wideTree(t, 1, 1)
	f.beforeMulti = func(n int) error {
		f.apply(&znode.Create{Path: fmt.Sprintf("/t/new%d", n), ACL: znode.OpenACL})
		return nil
	}
	d := deleter{tree: f}
	if err := d.deleteTree(t.Context(), "/t"); !errors.Is(err, znode.NotEmpty) {
		t.Fatalf("error %v, want NotEmpty", err)
	}
	if f.multis > 10*refillsMax {
		t.Errorf("gave up only after %d transactions", f.multis)
	}
}

// Goal: a delete that fails half way says exactly what was done. Method: the second
// transaction fails, once with a definite error and once with an unknown outcome.
func TestDeleteTreeReportsPartialResult(t *testing.T) {
	const nodes = 1 + 2 + 2*400
	for _, test := range []struct {
		err  error
		want string
		code int
	}{
		{(&fakeTree{}).fail("multi", "", znode.NoAuth), "deleted 500 nodes, then failed", exitDenied},
		{client.ErrUnknown, "deleted 500 nodes, and 303 more or none of them (outcome unknown)", exitUnreachable},
	} {
		f := wideTree(t, 2, 400)
		f.beforeMulti = func(n int) error {
			if n == 2 {
				return test.err
			}
			return nil
		}
		d := deleter{tree: f}
		err := d.deleteTree(t.Context(), "/t")
		if err == nil {
			t.Fatal("no error")
		}
		err = d.explain("/t", err)
		if !strings.Contains(err.Error(), test.want) || exitCode(err) != test.code {
			t.Errorf("error %q with exit code %d, want %q and %d", err, exitCode(err), test.want, test.code)
		}
		if left := len(f.paths()) - 1; left != nodes-d.deleted {
			t.Errorf("%d nodes left, deleted %d of %d", left, d.deleted, nodes)
		}
	}
}
