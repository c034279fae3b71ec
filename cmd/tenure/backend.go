package main

import (
	"context"
	"errors"
	"iter"

	"github.com/tenure-dev/tenure/client"
	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// tree is what the verbs use of a server's tree; its calls mean, and fail as, those of
// client.Client. There are two: of a Tenure server (tenureTree) and of a ZooKeeper
// (zkTree). Any number of goroutines may use one.
type tree interface {
	Get(ctx context.Context, path string, o client.ReadOptions) ([]byte, znode.Stat, error)
	Stat(ctx context.Context, path string, o client.ReadOptions) (znode.Stat, znode.Lifetime, error)
	List(ctx context.Context, path string, p wire.List, o client.ReadOptions) (wire.ListReply, error)
	// CreateNode returns a zero Stat if wantStat is false: it may cost a second request.
	CreateNode(ctx context.Context, path string, data []byte, o client.CreateOptions, wantStat bool) (string, znode.Stat, error)
	Set(ctx context.Context, path string, data []byte, version int32) (znode.Stat, error)
	Delete(ctx context.Context, path string, version int32) error
	GetACL(ctx context.Context, path string) ([]znode.ACL, znode.Stat, error)
	SetACL(ctx context.Context, path string, acl []znode.ACL, version int32) (znode.Stat, error)
	// Multi fails with errNotInTxn, unsent, where the server can do each op, but not
	// together with others.
	Multi(ctx context.Context, ops ...znode.Op) ([]znode.Result, error)
	// CountDescendants fails with znode.Unimplemented where they must be listed.
	CountDescendants(ctx context.Context, path string) (int, error)
	Sync(ctx context.Context, path string) error
	Watch(ctx context.Context, path string, o client.WatchOptions) iter.Seq2[wire.Event, error]
	// Held is the session that the ephemerals of this tree live in.
	Held() heldSession
	Close() error
}

// errNotInTxn is a usage error: the input asks for what the server has no request for.
var errNotInTxn = &usageError{"ZooKeeper has no transaction with a container or TTL node in it: create it by itself"}

// heldSession is a session that somebody holds on to.
type heldSession interface {
	ID() session.ID
	// Done is closed when the session is over.
	Done() <-chan struct{}
	// Err says why it is over, nil before.
	Err() error
}

// tenureTree is the tree of a Tenure server.
type tenureTree struct{ *client.Client }

func (t tenureTree) Held() heldSession { return t.Session() }

func (t tenureTree) CreateNode(ctx context.Context, path string, data []byte, o client.CreateOptions, _ bool) (string, znode.Stat, error) {
	return t.Create(ctx, path, data, o)
}

// countByListing counts what is below path where the server does not.
func countByListing(ctx context.Context, l lister, path string) (int, error) {
	n := 0
	w := walker{lister: l, visit: func(string, child, int) error { n++; return nil }}
	err := w.walk(ctx, path)
	return n, err
}

// isUnimplemented reports whether the server has no such operation.
func isUnimplemented(err error) bool { return errors.Is(err, znode.Unimplemented) }
