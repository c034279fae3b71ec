package main

import (
	"context"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tenure-dev/tenure/client"
	"github.com/tenure-dev/tenure/znode"
)

func ttlOf(op *znode.Create) time.Duration { return time.Duration(op.TTLMs) * time.Millisecond }

// zkFlags are the flags of a create that is neither a container nor a TTL node.
func zkFlags(m znode.Mode) (flags int32) {
	if m.Kind == znode.Ephemeral {
		flags |= zk.FlagEphemeral
	}
	if m.Sequential {
		flags |= zk.FlagSequence
	}
	return flags
}

// Multi implements tree.
func (z *zkTree) Multi(ctx context.Context, ops ...znode.Op) ([]znode.Result, error) {
	if create, ok := soleCreate(ops); ok {
		return z.createAlone(ctx, create)
	}
	requests, size := make([]any, len(ops)), 0
	for i, op := range ops {
		var err error
		if requests[i], err = z.multiOp(op); err != nil {
			return nil, err
		}
		size += zkOpSize(op)
	}
	if err := checkSize("multi", "", size); err != nil {
		return nil, err
	}
	replies, err := zkCall(ctx, z, "multi", "", true, func() ([]zk.MultiResponse, error) { return z.conn.Multi(requests...) })
	if err != nil {
		return refusedResults(ops, replies, err)
	}
	if len(replies) != len(ops) {
		return nil, &zkCallError{"multi", "", []error{client.ErrUnknown, fmt.Errorf("%d results for %d operations", len(replies), len(ops))}}
	}
	return z.results(ctx, ops, replies), nil
}

// soleCreate returns the create that ops are, if they are but one.
func soleCreate(ops []znode.Op) (*znode.Create, bool) {
	if len(ops) != 1 {
		return nil, false
	}
	create, ok := ops[0].(*znode.Create)
	return create, ok
}

// createAlone is a transaction of one create, which may be of any kind.
func (z *zkTree) createAlone(ctx context.Context, op *znode.Create) ([]znode.Result, error) {
	path, err := z.create(ctx, op)
	if err != nil {
		if code, ok := codeOf(err); ok {
			return []znode.Result{{Err: code}}, &client.Error{Op: "multi", Path: op.Path, Code: code}
		}
		return nil, err
	}
	return z.results(ctx, []znode.Op{op}, []zk.MultiResponse{{String: z.full(path)}}), nil
}

// multiOp converts an operation of a transaction.
func (z *zkTree) multiOp(op znode.Op) (any, error) {
	switch op := op.(type) {
	case *znode.Create:
		if op.Mode.Kind == znode.Container || op.Mode.Kind == znode.TTL {
			return nil, fmt.Errorf("create %s: %w", op.Path, errNotInTxn)
		}
		path := z.full(op.Path)
		if op.Mode.Sequential {
			path = z.chroot + op.Path
		}
		return &zk.CreateRequest{Path: path, Data: op.Data, Acl: zkACL(op.ACL), Flags: zkFlags(op.Mode)}, nil
	case *znode.SetData:
		return &zk.SetDataRequest{Path: z.full(op.Path), Data: op.Data, Version: op.Version}, nil
	case *znode.Delete:
		return &zk.DeleteRequest{Path: z.full(op.Path), Version: op.Version}, nil
	case *znode.Check:
		return &zk.CheckVersionRequest{Path: z.full(op.Path), Version: op.Version}, nil
	}
	return nil, fmt.Errorf("%T: %w", op, znode.Unimplemented)
}

// zkOpSize is about how many bytes op has in a request.
func zkOpSize(op znode.Op) int {
	switch op := op.(type) {
	case *znode.Create:
		return zkSize(op.Path, op.Data, op.ACL)
	case *znode.SetData:
		return zkSize(op.Path, op.Data, nil)
	}
	_, path := describeOp(op)
	return zkSize(path, nil, nil)
}

// refusedResults says per operation what became of it, and gives err the path of the one
// that failed.
func refusedResults(ops []znode.Op, replies []zk.MultiResponse, err error) ([]znode.Result, error) {
	if _, definite := codeOf(err); !definite || len(replies) != len(ops) {
		return nil, err
	}
	results := make([]znode.Result, len(ops))
	for i, r := range replies {
		results[i].Err, _ = zkCode(r.Error)
	}
	if i := failedOp(results); i >= 0 {
		_, path := describeOp(ops[i])
		return results, &client.Error{Op: "multi", Path: path, Code: results[i].Err}
	}
	return nil, err
}

// results converts the results of a transaction that was applied. The Stat of a created
// node, where it is wanted, is read afterwards; it is left out where that fails.
func (z *zkTree) results(ctx context.Context, ops []znode.Op, replies []zk.MultiResponse) []znode.Result {
	results := make([]znode.Result, len(ops))
	_ = inParallel(ctx, len(ops), func(ctx context.Context, i int) error {
		switch op := ops[i].(type) {
		case *znode.Create:
			results[i] = znode.Result{Kind: znode.ResultCreate, Path: z.below(replies[i].String)}
			if !op.WantStat {
				return nil
			}
			if stat, err := z.createdStat(ctx, results[i].Path, op.Data); err == nil {
				results[i].Kind, results[i].Stat = znode.ResultCreateStat, stat
			}
		case *znode.SetData:
			results[i].Kind = znode.ResultSetData
			if replies[i].Stat != nil {
				results[i].Stat, _ = statOf(replies[i].Stat)
			}
		case *znode.Delete:
			results[i].Kind = znode.ResultDelete
		case *znode.Check:
			results[i].Kind = znode.ResultCheck
		}
		return nil
	})
	return results
}
