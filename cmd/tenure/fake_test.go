package main

import (
	"bufio"
	"bytes"
	"context"
	"testing"

	"github.com/tenure-dev/tenure/client"
	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// fakeTree is a server in memory that follows the rules of znode.Apply. Tests own it.
type fakeTree struct {
	t    *testing.T
	tree *znode.Tree
	// pageMax bounds a page as a server's reply limit does, 0 = no bound.
	pageMax int
	// denied may not be listed.
	denied map[string]bool
	// beforeMulti, if set, runs before each Multi with its number, from 1.
	beforeMulti func(n int) error
	lists       int
	multis      int
	opsMax      int // of all Multis so far
}

func newFakeTree(t *testing.T) *fakeTree {
	return &fakeTree{t: t, tree: znode.NewTree(), denied: map[string]bool{}}
}

// apply runs one transaction.
func (f *fakeTree) apply(op znode.Op) znode.Result {
	result, delta := f.tree.Apply(znode.Stamp{TimeMs: f.tree.LastTimeMs() + 1}, &znode.Txn{Op: op})
	f.tree.Update(&delta)
	return result
}

// create makes path with data; its parent must exist.
func (f *fakeTree) create(path, data string) {
	f.t.Helper()
	r := f.apply(&znode.Create{Path: path, Data: []byte(data), ACL: znode.OpenACL})
	if r.Err != znode.OK {
		f.t.Fatalf("create %s: %v", path, r.Err)
	}
}

func (f *fakeTree) fail(op, path string, code znode.Error) error {
	return &requestError{"fake:1", &client.Error{Op: op, Path: path, Code: code}}
}

func (f *fakeTree) List(_ context.Context, path string, p wire.List) (wire.ListReply, error) {
	f.lists++
	node := f.tree.Node(path)
	if node == nil {
		return wire.ListReply{}, f.fail("list", path, znode.NoNode)
	}
	if f.denied[path] {
		return wire.ListReply{}, f.fail("list", path, znode.NoAuth)
	}
	reply := wire.ListReply{Stat: znode.StatOf(node, f.tree.Children(path)), Lifetime: node.Lifetime()}
	limit := int(p.Limit)
	if f.pageMax > 0 && (limit == 0 || limit > f.pageMax) {
		limit = f.pageMax
	}
	for _, name := range f.tree.List(path) {
		if name <= p.After {
			continue
		}
		if limit > 0 && len(reply.Names) == limit {
			reply.More = true
			break
		}
		reply.Names = append(reply.Names, name)
		if p.Stats {
			child := znode.Join(path, name)
			reply.Stats = append(reply.Stats, znode.StatOf(f.tree.Node(child), f.tree.Children(child)))
			reply.Lifetimes = append(reply.Lifetimes, f.tree.Node(child).Lifetime())
		}
	}
	return reply, nil
}

func (f *fakeTree) Multi(_ context.Context, ops ...znode.Op) ([]znode.Result, error) {
	f.multis++
	f.opsMax = max(f.opsMax, len(ops))
	if f.beforeMulti != nil {
		if err := f.beforeMulti(f.multis); err != nil {
			return nil, err
		}
	}
	r := f.apply(&znode.Multi{Ops: ops})
	if r.Err != znode.OK {
		return r.Sub, f.fail("multi", "", r.Err)
	}
	return r.Sub, nil
}

func (f *fakeTree) Get(_ context.Context, path string) ([]byte, znode.Stat, error) {
	node := f.tree.Node(path)
	if node == nil {
		return nil, znode.Stat{}, f.fail("get", path, znode.NoNode)
	}
	return node.Data, znode.StatOf(node, f.tree.Children(path)), nil
}

func (f *fakeTree) Stat(_ context.Context, path string) (znode.Stat, znode.Lifetime, error) {
	node := f.tree.Node(path)
	if node == nil {
		return znode.Stat{}, znode.Lifetime{}, f.fail("stat", path, znode.NoNode)
	}
	return znode.StatOf(node, f.tree.Children(path)), node.Lifetime(), nil
}

func (f *fakeTree) GetACL(_ context.Context, path string) ([]znode.ACL, znode.Stat, error) {
	node := f.tree.Node(path)
	if node == nil {
		return nil, znode.Stat{}, f.fail("getACL", path, znode.NoNode)
	}
	return node.ACL, znode.StatOf(node, f.tree.Children(path)), nil
}

func (f *fakeTree) Set(_ context.Context, path string, data []byte, version int32) (znode.Stat, error) {
	r := f.apply(&znode.SetData{Path: path, Data: data, Version: version})
	if r.Err != znode.OK {
		return znode.Stat{}, f.fail("set", path, r.Err)
	}
	return r.Stat, nil
}

func (f *fakeTree) SetACL(_ context.Context, path string, acl []znode.ACL, version int32) (znode.Stat, error) {
	r := f.apply(&znode.SetACL{Path: path, ACL: acl, Version: version})
	if r.Err != znode.OK {
		return znode.Stat{}, f.fail("setACL", path, r.Err)
	}
	return r.Stat, nil
}

// paths returns all paths of the tree but the server's own.
func (f *fakeTree) paths() []string {
	var all []string
	f.tree.All(func(path string, _ *znode.Node, _ znode.Children) bool {
		if path != "/" && path != "/zookeeper" && parentOf(path) != "/zookeeper" {
			all = append(all, path)
		}
		return true
	})
	return all
}

func parentOf(path string) string {
	parent, _ := znode.Split(path)
	return parent
}

// testApp is an app whose streams are buffers.
func testApp(output string) (a *app, stdout, stderr *bytes.Buffer) {
	stdout, stderr = &bytes.Buffer{}, &bytes.Buffer{}
	a = &app{stdin: &bytes.Buffer{}, stdout: stdout, out: bufio.NewWriter(stdout), stderr: stderr, output: output}
	return a, stdout, stderr
}
