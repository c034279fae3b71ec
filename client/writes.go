package client

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// CreateOptions says what Create makes. The zero value is a persistent znode that
// everybody may use.
type CreateOptions struct {
	ACL  []znode.ACL // default znode.OpenACL
	Mode znode.Mode
	TTL  time.Duration // lifetime, for znode.TTL, in whole milliseconds
}

// Create makes a znode and returns its path, which differs from the one given if it is
// sequential, and its Stat.
func (c *Client) Create(ctx context.Context, path string, data []byte, o CreateOptions) (string, znode.Stat, error) {
	full, err := c.checkedName("create", path, o.Mode.Sequential)
	if err != nil {
		return "", znode.Stat{}, err
	}
	if o.ACL == nil {
		o.ACL = znode.OpenACL
	}
	r, err := c.write(ctx, "create", path, &znode.Create{
		Path: full, Data: bytes.Clone(data), ACL: o.ACL, Mode: o.Mode,
		TTLMs: o.TTL.Milliseconds(), WantStat: true,
	})
	if err != nil {
		return "", znode.Stat{}, err
	}
	return c.below(r.Path), r.Stat, nil
}

// Set replaces a znode's data if its version is the one given; -1 is any.
func (c *Client) Set(ctx context.Context, path string, data []byte, version int32) (znode.Stat, error) {
	full, err := c.checkedPath("set", path)
	if err != nil {
		return znode.Stat{}, err
	}
	r, err := c.write(ctx, "set", path, &znode.SetData{Path: full, Data: bytes.Clone(data), Version: version})
	if err != nil {
		return znode.Stat{}, err
	}
	return r.Stat, nil
}

// Delete removes a znode without children if its version is the one given; -1 is any.
func (c *Client) Delete(ctx context.Context, path string, version int32) error {
	full, err := c.checkedPath("delete", path)
	if err != nil {
		return err
	}
	_, err = c.write(ctx, "delete", path, &znode.Delete{Path: full, Version: version})
	return err
}

// SetACL replaces a znode's access list if its aversion is the one given; -1 is any.
func (c *Client) SetACL(ctx context.Context, path string, acl []znode.ACL, version int32) (znode.Stat, error) {
	full, err := c.checkedPath("setACL", path)
	if err != nil {
		return znode.Stat{}, err
	}
	r, err := c.write(ctx, "setACL", path, &znode.SetACL{Path: full, ACL: acl, Version: version})
	if err != nil {
		return znode.Stat{}, err
	}
	return r.Stat, nil
}

// Multi applies all ops (Create, Delete, SetData, Check) or none. If they fail the
// results say per op what became of it (znode.Result.Sub), and the error is an *Error
// with the path and the code of the op that failed.
func (c *Client) Multi(ctx context.Context, ops ...znode.Op) ([]znode.Result, error) {
	m := &znode.Multi{Ops: make([]znode.Op, len(ops))}
	paths := make([]string, len(ops))
	for i, op := range ops {
		var err error
		if m.Ops[i], paths[i], err = c.multiOp(op); err != nil {
			return nil, err
		}
	}
	r, err := c.write(ctx, "multi", "", m)
	if r == nil {
		return nil, err
	}
	for i := range r.Sub {
		r.Sub[i].Path = c.below(r.Sub[i].Path)
	}
	for i := range r.Sub {
		if code := r.Sub[i].Err; code != znode.OK && code != znode.RuntimeInconsistency && i < len(paths) {
			return r.Sub, &Error{Op: "multi", Path: paths[i], Code: code}
		}
	}
	return r.Sub, err
}

// multiOp returns a copy of op, complete and below the chroot, and the path it names.
func (c *Client) multiOp(op znode.Op) (full znode.Op, path string, err error) {
	switch op := op.(type) {
	case *znode.Create:
		o := *op
		o.Path, err = c.checkedName("multi", op.Path, op.Mode.Sequential)
		o.Data, o.WantStat = bytes.Clone(op.Data), true
		if o.ACL == nil {
			o.ACL = znode.OpenACL
		}
		return &o, op.Path, err
	case *znode.Delete:
		o := *op
		o.Path, err = c.checkedPath("multi", op.Path)
		return &o, op.Path, err
	case *znode.SetData:
		o := *op
		o.Path, err = c.checkedPath("multi", op.Path)
		o.Data = bytes.Clone(op.Data)
		return &o, op.Path, err
	case *znode.Check:
		o := *op
		o.Path, err = c.checkedPath("multi", op.Path)
		return &o, op.Path, err
	}
	return nil, "", fmt.Errorf("client: multi: %T is not allowed: must be *znode.Create, *znode.Delete, *znode.SetData or *znode.Check", op)
}

// write sends one write. The op must be the client's own copy: it may be sent again
// long after the caller has gone. A failed multi has a result besides the error.
func (c *Client) write(ctx context.Context, op, path string, body znode.Op) (*znode.Result, error) {
	cl := c.newCall(op, path, wire.OpOf(body), body)
	cl.write, cl.proves = true, true
	rep, err := c.do(ctx, cl)
	c.free(cl)
	if err != nil {
		return nil, err
	}
	r, ok := rep.Body.(*znode.Result)
	switch {
	case !ok && rep.Body == nil:
		return &znode.Result{}, nil // a header is all the answer there is
	case !ok:
		return nil, fmt.Errorf("%w: %s answered with %T", errProtocol, op, rep.Body)
	case r.Err != znode.OK:
		return r, &Error{Op: op, Path: path, Code: r.Err}
	}
	return r, nil
}
