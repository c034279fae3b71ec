package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/tenure-dev/tenure/client"
	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// pageSize is how many children one request lists.
const pageSize = 1000

// conn is an open session whose every request is bounded in time and whose errors
// say which server was asked. It may be used by any number of goroutines.
type conn struct {
	tree   tree
	client *client.Client // nil if the server is a ZooKeeper
	where  string
	limit  time.Duration
	read   client.ReadOptions
}

// do runs one request within the limit and says where it failed.
func (c *conn) do(ctx context.Context, request func(ctx context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, c.limit)
	defer cancel()
	err := request(bounded)
	if err == nil {
		return nil
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) { // only --timeout gives ctx an end
		return &requestError{fmt.Sprintf("--timeout %v is over, asking %s", c.limit, c.where), err}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &requestError{fmt.Sprintf("no answer from %s within %v", c.where, c.limit), err}
	}
	return &requestError{c.where, err}
}

func (c *conn) Get(ctx context.Context, path string) (data []byte, stat znode.Stat, err error) {
	err = c.do(ctx, func(ctx context.Context) error {
		data, stat, err = c.tree.Get(ctx, path, c.read)
		return err
	})
	return data, stat, err
}

// Stat fails with znode.NoNode if there is no node.
func (c *conn) Stat(ctx context.Context, path string) (stat znode.Stat, life znode.Lifetime, err error) {
	err = c.do(ctx, func(ctx context.Context) error {
		stat, life, err = c.tree.Stat(ctx, path, c.read)
		return err
	})
	return stat, life, err
}

func (c *conn) List(ctx context.Context, path string, p wire.List) (reply wire.ListReply, err error) {
	err = c.do(ctx, func(ctx context.Context) error {
		reply, err = c.tree.List(ctx, path, p, c.read)
		return err
	})
	return reply, err
}

// CreateNode returns a zero Stat if wantStat is false.
func (c *conn) CreateNode(ctx context.Context, path string, data []byte, o client.CreateOptions, wantStat bool) (created string, stat znode.Stat, err error) {
	err = c.do(ctx, func(ctx context.Context) error {
		created, stat, err = c.tree.CreateNode(ctx, path, data, o, wantStat)
		return err
	})
	return created, stat, err
}

func (c *conn) Set(ctx context.Context, path string, data []byte, version int32) (stat znode.Stat, err error) {
	err = c.do(ctx, func(ctx context.Context) error {
		stat, err = c.tree.Set(ctx, path, data, version)
		return err
	})
	return stat, err
}

func (c *conn) Delete(ctx context.Context, path string, version int32) error {
	return c.do(ctx, func(ctx context.Context) error { return c.tree.Delete(ctx, path, version) })
}

func (c *conn) GetACL(ctx context.Context, path string) (acl []znode.ACL, stat znode.Stat, err error) {
	err = c.do(ctx, func(ctx context.Context) error {
		acl, stat, err = c.tree.GetACL(ctx, path)
		return err
	})
	return acl, stat, err
}

func (c *conn) SetACL(ctx context.Context, path string, acl []znode.ACL, version int32) (stat znode.Stat, err error) {
	err = c.do(ctx, func(ctx context.Context) error {
		stat, err = c.tree.SetACL(ctx, path, acl, version)
		return err
	})
	return stat, err
}

func (c *conn) Multi(ctx context.Context, ops ...znode.Op) (results []znode.Result, err error) {
	err = c.do(ctx, func(ctx context.Context) error {
		results, err = c.tree.Multi(ctx, ops...)
		return err
	})
	return results, err
}

func (c *conn) CountDescendants(ctx context.Context, path string) (n int, err error) {
	err = c.do(ctx, func(ctx context.Context) error {
		n, err = c.tree.CountDescendants(ctx, path)
		return err
	})
	if isUnimplemented(err) {
		return countByListing(ctx, c, path)
	}
	return n, err
}

func (c *conn) Sync(ctx context.Context, path string) error {
	return c.do(ctx, func(ctx context.Context) error { return c.tree.Sync(ctx, path) })
}

func (c *conn) Sessions(ctx context.Context, after session.ID, limit int32) (reply wire.SessionsReply, err error) {
	err = c.do(ctx, func(ctx context.Context) error {
		reply, err = c.client.Sessions(ctx, after, limit)
		return err
	})
	return reply, err
}

func (c *conn) KillSession(ctx context.Context, id session.ID) error {
	return c.do(ctx, func(ctx context.Context) error { return c.client.KillSession(ctx, id) })
}

func (c *conn) Members(ctx context.Context) (reply wire.MembersReply, err error) {
	err = c.do(ctx, func(ctx context.Context) error {
		reply, err = c.client.Members(ctx)
		return err
	})
	return reply, err
}

func (c *conn) ChangeMembers(ctx context.Context, steps ...wire.MemberStep) (reply wire.MembersReply, err error) {
	err = c.do(ctx, func(ctx context.Context) error {
		reply, err = c.client.ChangeMembers(ctx, steps...)
		return err
	})
	return reply, err
}

func (c *conn) TransferLead(ctx context.Context, id int32) (reply wire.MembersReply, err error) {
	err = c.do(ctx, func(ctx context.Context) error {
		reply, err = c.client.TransferLead(ctx, id)
		return err
	})
	return reply, err
}

func (c *conn) Status(ctx context.Context) (reply wire.StatusReply, err error) {
	err = c.do(ctx, func(ctx context.Context) error {
		reply, err = c.client.Status(ctx)
		return err
	})
	return reply, err
}

// Watch yields the client's events; an error says where.
func (c *conn) Watch(ctx context.Context, path string, o client.WatchOptions) iter.Seq2[wire.Event, error] {
	return func(yield func(wire.Event, error) bool) {
		for event, err := range c.tree.Watch(ctx, path, o) {
			if err != nil {
				err = &requestError{c.where, err}
			}
			if !yield(event, err) {
				return
			}
		}
	}
}
