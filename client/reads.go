package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// ReadOptions modifies a read. The zero value is linearizable.
type ReadOptions struct {
	// Stale allows the member to answer from its state as it is, which may lag behind
	// other clients' writes, never behind this client's.
	Stale bool
}

// Get returns a znode's data, nil for null, and its Stat.
func (c *Client) Get(ctx context.Context, path string, o ReadOptions) ([]byte, znode.Stat, error) {
	full, err := c.checkedPath("get", path)
	if err != nil {
		return nil, znode.Stat{}, err
	}
	d, err := read[*wire.DataReply](ctx, c, "get", path, wire.OpGetData, &wire.PathWatch{Path: full}, o)
	if err != nil {
		return nil, znode.Stat{}, err
	}
	return d.Data, d.Stat, nil
}

// Exists returns whether there is a znode, and its Stat. That there is none is no error.
func (c *Client) Exists(ctx context.Context, path string, o ReadOptions) (znode.Stat, bool, error) {
	full, err := c.checkedPath("exists", path)
	if err != nil {
		return znode.Stat{}, false, err
	}
	s, err := read[*wire.StatReply](ctx, c, "exists", path, wire.OpExists, &wire.PathWatch{Path: full}, o)
	switch {
	case errors.Is(err, znode.NoNode):
		return znode.Stat{}, false, nil
	case err != nil:
		return znode.Stat{}, false, err
	}
	return s.Stat, true, nil
}

// Stat returns a znode's Stat and what ends its life, which a Stat does not tell.
func (c *Client) Stat(ctx context.Context, path string, o ReadOptions) (znode.Stat, znode.Lifetime, error) {
	full, err := c.checkedPath("stat", path)
	if err != nil {
		return znode.Stat{}, znode.Lifetime{}, err
	}
	// A list of children says it of their parent. One child is the shortest list.
	r, err := read[*wire.ListReply](ctx, c, "stat", path, wire.OpList, &wire.List{Path: full, Limit: 1}, o)
	if err != nil {
		return znode.Stat{}, znode.Lifetime{}, err
	}
	return r.Stat, r.Lifetime, nil
}

// Children returns the names of all children in ascending order, and the Stat of their
// parent. What does not fit one reply is read in pages: each page is linearizable, the
// whole is not, and the Stat is that of the first page, so that its Pzxid tells whether
// children came or went meanwhile.
func (c *Client) Children(ctx context.Context, path string, o ReadOptions) ([]string, znode.Stat, error) {
	first, err := c.List(ctx, path, wire.List{}, o)
	if err != nil {
		return nil, znode.Stat{}, err
	}
	names := first.Names
	for page := first; page.More && len(page.Names) > 0; {
		page, err = c.List(ctx, path, wire.List{After: names[len(names)-1]}, o)
		if err != nil {
			return nil, znode.Stat{}, err
		}
		names = append(names, page.Names...)
	}
	return names, first.Stat, nil
}

// List returns one page of children in ascending order, with Stats and Lifetimes if p
// asks for them.
// p.Path is ignored in favour of path.
func (c *Client) List(ctx context.Context, path string, p wire.List, o ReadOptions) (wire.ListReply, error) {
	full, err := c.checkedPath("list", path)
	if err != nil {
		return wire.ListReply{}, err
	}
	p.Path = full
	r, err := read[*wire.ListReply](ctx, c, "list", path, wire.OpList, &p, o)
	if err != nil {
		return wire.ListReply{}, err
	}
	return *r, nil
}

// GetACL returns a znode's access list and Stat. Who is not an administrator of the
// znode sees digests masked.
func (c *Client) GetACL(ctx context.Context, path string) ([]znode.ACL, znode.Stat, error) {
	full, err := c.checkedPath("getACL", path)
	if err != nil {
		return nil, znode.Stat{}, err
	}
	r, err := read[*wire.ACLReply](ctx, c, "getACL", path, wire.OpGetACL, &wire.PathOnly{Path: full}, ReadOptions{})
	if err != nil {
		return nil, znode.Stat{}, err
	}
	return r.ACL, r.Stat, nil
}

// CountDescendants returns how many znodes there are below path.
func (c *Client) CountDescendants(ctx context.Context, path string) (int, error) {
	full, err := c.checkedPath("countDescendants", path)
	if err != nil {
		return 0, err
	}
	r, err := read[*wire.CountReply](ctx, c, "countDescendants", path, wire.OpGetAllChildrenNumber, &wire.PathOnly{Path: full}, ReadOptions{})
	if err != nil {
		return 0, err
	}
	return int(r.Count), nil
}

// Ephemerals returns the paths of this session's ephemerals that begin with prefix.
func (c *Client) Ephemerals(ctx context.Context, prefix string) ([]string, error) {
	full := c.full(prefix)
	r, err := read[*wire.PathsReply](ctx, c, "ephemerals", prefix, wire.OpGetEphemerals, &wire.PathOnly{Path: full}, ReadOptions{})
	if err != nil {
		return nil, err
	}
	paths := r.Paths[:0]
	for _, p := range r.Paths {
		if b := c.below(p); c.chroot == "" || b != p {
			paths = append(paths, b)
		}
	}
	return paths, nil
}

// Sync is a barrier: later reads, stale ones too, see all that was committed before it.
func (c *Client) Sync(ctx context.Context, path string) error {
	full, err := c.checkedPath("sync", path)
	if err != nil {
		return err
	}
	cl := c.newCall("sync", path, wire.OpSync, &wire.PathOnly{Path: full})
	cl.proves = true
	_, err = c.do(ctx, cl)
	return err
}

// read sends one read and returns the body of its reply.
func read[B any](ctx context.Context, c *Client, op, path string, wop wire.Op, body any, o ReadOptions) (B, error) {
	cl := c.newCall(op, path, wop, body)
	cl.req.Stale, cl.proves = o.Stale, !o.Stale
	rep, err := c.do(ctx, cl)
	c.free(cl)
	if err != nil {
		var zero B
		return zero, err
	}
	return bodyOf[B](rep)
}

func bodyOf[B any](rep *wire.Reply) (B, error) {
	b, ok := rep.Body.(B)
	if !ok {
		return b, fmt.Errorf("%w: %v answered with %T", errProtocol, rep.Op, rep.Body)
	}
	return b, nil
}

// isLongList reports whether err can be the answer to a list that is longer than a
// reply. It is never one that a page would meet too.
func isLongList(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Code != znode.NoNode && e.Code != znode.NoAuth
}
