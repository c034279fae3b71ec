package recipestest

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/znode"
)

// call is one request and, when done is closed, its outcome. Before that the fake's lock
// guards it.
type call struct {
	kind OpKind
	op   znode.Op             // of a write
	read func(conn *fakeConn) // of a read: looks at the member's state and sets got
	held []recipes.Held       // of a renewal

	sent, finished, abandoned bool
	sentAt                    time.Time // of the first time
	submitted, judged         bool      // on this connection; ever
	waitZxid                  int64     // the answer may be given when this was applied
	result                    znode.Result
	got                       outcome
	err                       error
	done                      chan struct{}
}

// outcome is what a read or a renewal found.
type outcome struct {
	err   znode.Error
	data  []byte
	stat  znode.Stat
	names []string
	found bool
	watch *fakeWatch
	held  []error
}

// needsLeader reports whether the leader must be asked.
func (k *call) needsLeader(exact bool) bool {
	return exact || k.read == nil
}

// finish ends the call for its caller, who may have left already.
func (k *call) finish(err error) {
	if k.finished {
		return
	}
	k.finished, k.err = true, err
	close(k.done)
}

// lost is the outcome of a call that was sent on a connection that is no more.
func (k *call) lost(why string) error {
	if k.op != nil || k.kind == Renew {
		return fmt.Errorf("%w: %s", recipes.ErrUncertain, why)
	}
	return fmt.Errorf("%w: %s", recipes.ErrUnavailable, why)
}

// Caps implements recipes.Store.
func (c *fakeClient) Caps() recipes.Caps {
	return recipes.Caps{ExactExpiry: c.f.o.Exact, SessionProbe: c.f.o.Exact, Containers: true}
}

// write performs a call that changes something.
func (c *fakeClient) write(ctx context.Context, kind OpKind, op znode.Op) (znode.Result, error) {
	k := &call{kind: kind, op: op}
	if err := c.do(ctx, nil, k); err != nil {
		return znode.Result{}, err
	}
	return k.result, nil
}

// refusal is the error of a single operation.
func refusal(kind recipes.OpKind, path string, code znode.Error) error {
	if code == znode.OK {
		return nil
	}
	return fmt.Errorf("%v %s: %w", kind, path, code)
}

// toZnode translates an operation.
func toZnode(op recipes.Op) (znode.Op, error) {
	if op.Kind == recipes.KindCreate {
		if err := op.Spec.Validate(); err != nil {
			return nil, fmt.Errorf("create %s: %w", op.Path, err)
		}
		return &znode.Create{
			Path: op.Path, Data: bytes.Clone(op.Data), ACL: znode.OpenACL,
			Mode: znode.Mode{Kind: op.Spec.Kind, Sequential: op.Spec.Sequential},
		}, nil
	}
	version, err := op.Cond.Version()
	if err != nil {
		return nil, fmt.Errorf("%v %s: %w", op.Kind, op.Path, err)
	}
	switch op.Kind {
	case recipes.KindSet:
		return &znode.SetData{Path: op.Path, Data: bytes.Clone(op.Data), Version: version}, nil
	case recipes.KindDelete:
		return &znode.Delete{Path: op.Path, Version: version}, nil
	case recipes.KindCheck:
		return &znode.Check{Path: op.Path, Version: version}, nil
	}
	return nil, fmt.Errorf("%w: an operation of kind %v", recipes.ErrInvalid, op.Kind)
}

// one performs a single operation.
func (c *fakeClient) one(ctx context.Context, kind OpKind, op recipes.Op) (znode.Result, error) {
	translated, err := toZnode(op)
	if err != nil {
		return znode.Result{}, err
	}
	r, err := c.write(ctx, kind, translated)
	if err == nil {
		err = refusal(op.Kind, op.Path, r.Err)
	}
	return r, err
}

// Create implements recipes.Store.
func (c *fakeClient) Create(ctx context.Context, path string, data []byte, s recipes.CreateSpec) (string, error) {
	r, err := c.one(ctx, Create, recipes.OpCreate(path, data, s))
	return r.Path, err
}

// Set implements recipes.Store.
func (c *fakeClient) Set(ctx context.Context, path string, data []byte, cond recipes.Cond) (znode.Stat, error) {
	r, err := c.one(ctx, Set, recipes.OpSet(path, data, cond))
	return r.Stat, err
}

// Delete implements recipes.Store.
func (c *fakeClient) Delete(ctx context.Context, path string, cond recipes.Cond) error {
	_, err := c.one(ctx, Delete, recipes.OpDelete(path, cond))
	return err
}

// Multi implements recipes.Store.
func (c *fakeClient) Multi(ctx context.Context, ops ...recipes.Op) ([]recipes.OpResult, error) {
	multi := &znode.Multi{}
	for _, op := range ops {
		translated, err := toZnode(op)
		if err != nil {
			return nil, err
		}
		multi.Ops = append(multi.Ops, translated)
	}
	r, err := c.write(ctx, Multi, multi)
	if err != nil {
		return nil, err
	}
	if r.Err != znode.OK {
		for i, sub := range r.Sub {
			if sub.Err != znode.OK {
				return nil, &recipes.MultiError{Index: i, Op: ops[i], Err: sub.Err}
			}
		}
		return nil, fmt.Errorf("transaction: %w", r.Err)
	}
	results := make([]recipes.OpResult, len(r.Sub))
	for i, sub := range r.Sub {
		results[i] = recipes.OpResult{Path: sub.Path, Stat: sub.Stat}
	}
	return results, nil
}

// look performs a read.
func (c *fakeClient) look(ctx context.Context, k *call, name string, path string) error {
	if err := c.do(ctx, nil, k); err != nil {
		return err
	}
	if k.got.err != znode.OK {
		return fmt.Errorf("%s %s: %w", name, path, k.got.err)
	}
	return nil
}

// get makes a call that reads data and, if it is there or missing is set, watches it.
func (c *fakeClient) get(kind OpKind, path string, watch bool) *call {
	k := &call{kind: kind}
	k.read = func(conn *fakeConn) {
		k.got = outcome{}
		tree := conn.m.tree
		n := tree.Node(path)
		switch {
		case n != nil:
			k.got.data, k.got.found = bytes.Clone(n.Data), true
			k.got.stat = znode.StatOf(n, tree.Children(path))
		case kind == Get:
			k.got.err = znode.NoNode
			return
		}
		if watch {
			k.got.watch = c.newWatch(path, false)
			conn.m.watch(conn, k.got.watch)
		}
	}
	return k
}

// Get implements recipes.Store.
func (c *fakeClient) Get(ctx context.Context, path string) ([]byte, znode.Stat, error) {
	k := c.get(Get, path, false)
	if err := c.look(ctx, k, "get", path); err != nil {
		return nil, znode.Stat{}, err
	}
	return k.got.data, k.got.stat, nil
}

// GetW implements recipes.Store.
func (c *fakeClient) GetW(ctx context.Context, path string) ([]byte, znode.Stat, recipes.Watch, error) {
	k := c.get(Get, path, true)
	if err := c.look(ctx, k, "get", path); err != nil {
		return nil, znode.Stat{}, recipes.Watch{}, err
	}
	return k.got.data, k.got.stat, k.got.watch.public(), nil
}

// ExistsW implements recipes.Store.
func (c *fakeClient) ExistsW(ctx context.Context, path string) (znode.Stat, bool, recipes.Watch, error) {
	k := c.get(Exists, path, true)
	if err := c.look(ctx, k, "exists", path); err != nil {
		return znode.Stat{}, false, recipes.Watch{}, err
	}
	return k.got.stat, k.got.found, k.got.watch.public(), nil
}

// list makes a call that reads the names of children.
func (c *fakeClient) list(path string, watch bool) *call {
	k := &call{kind: Children}
	k.read = func(conn *fakeConn) {
		k.got = outcome{}
		tree := conn.m.tree
		n := tree.Node(path)
		if n == nil {
			k.got.err = znode.NoNode
			return
		}
		k.got.names, k.got.stat = tree.List(path), znode.StatOf(n, tree.Children(path))
		if watch {
			k.got.watch = c.newWatch(path, true)
			conn.m.watch(conn, k.got.watch)
		}
	}
	return k
}

// Children implements recipes.Store.
func (c *fakeClient) Children(ctx context.Context, path string) ([]string, znode.Stat, error) {
	k := c.list(path, false)
	if err := c.look(ctx, k, "children", path); err != nil {
		return nil, znode.Stat{}, err
	}
	return k.got.names, k.got.stat, nil
}

// ChildrenW implements recipes.Store.
func (c *fakeClient) ChildrenW(ctx context.Context, path string) ([]string, znode.Stat, recipes.Watch, error) {
	k := c.list(path, true)
	if err := c.look(ctx, k, "children", path); err != nil {
		return nil, znode.Stat{}, recipes.Watch{}, err
	}
	return k.got.names, k.got.stat, k.got.watch.public(), nil
}

// Sync implements recipes.Store.
func (c *fakeClient) Sync(ctx context.Context, _ string) error {
	return c.do(ctx, nil, &call{kind: Sync})
}

// SessionOpen implements recipes.Store.
func (c *fakeClient) SessionOpen(ctx context.Context, id int64) (bool, error) {
	if !c.f.o.Exact {
		return false, fmt.Errorf("session probe: %w", recipes.ErrUnsupported)
	}
	k := &call{kind: Probe}
	k.read = func(conn *fakeConn) { k.got.found = conn.m.tree.Session(session.ID(id)) != nil }
	err := c.do(ctx, nil, k)
	return k.got.found && err == nil, err
}
