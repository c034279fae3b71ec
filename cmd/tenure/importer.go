package main

import (
	"bytes"
	"context"
	"errors"

	"github.com/tenure-dev/tenure/znode"
)

const (
	// Bounds of one transaction of an import.
	importOpsMax   = 200
	importBytesMax = 256 << 10
)

// importableTree is what import needs of a server; *conn is one.
type importableTree interface {
	Multi(ctx context.Context, ops ...znode.Op) ([]znode.Result, error)
	Get(ctx context.Context, path string) ([]byte, znode.Stat, error)
	Set(ctx context.Context, path string, data []byte, version int32) (znode.Stat, error)
	SetACL(ctx context.Context, path string, acl []znode.ACL, version int32) (znode.Stat, error)
}

// importer creates the nodes of an export in bounded transactions. It is used by one
// goroutine.
type importer struct {
	tree              importableTree
	root              string
	overwrite, dryRun bool
	conflict          func(path string)

	created, replaced, same, conflicts int

	batch      []*znode.Create
	batchBytes int
}

// add puts one node into the batch.
func (i *importer) add(ctx context.Context, r *record) error {
	op, err := i.createOf(r)
	if err != nil {
		return err
	}
	size := len(op.Path) + len(op.Data)
	for _, entry := range op.ACL {
		size += len(entry.Scheme) + len(entry.ID)
	}
	if len(i.batch) == importOpsMax || len(i.batch) > 0 && i.batchBytes+size > importBytesMax {
		if err := i.flush(ctx); err != nil {
			return err
		}
	}
	i.batch = append(i.batch, op)
	i.batchBytes += size
	return nil
}

// createOf turns a record into the create of its node.
func (i *importer) createOf(r *record) (*znode.Create, error) {
	if err := znode.ValidatePath(r.Path); err != nil {
		return nil, &usageError{err.Error()}
	}
	data, err := r.bytes()
	if err != nil {
		return nil, usagef("%s: %v", r.Path, err)
	}
	op := &znode.Create{Path: absolutePath(i.root, r.Path), Data: data, ACL: r.ACL}
	if len(r.ACL) == 0 {
		op.ACL = znode.OpenACL
	}
	if op.Mode.Kind, op.TTLMs, err = parseKind(r.Mode, r.TTL); err == nil && op.Mode.Kind == znode.Ephemeral {
		err = errors.New("an ephemeral node would be gone with this command")
	}
	if err != nil {
		return nil, usagef("%s: %v", r.Path, err)
	}
	return op, nil
}

// flush creates the batch: in one transaction if none of it exists yet and the server
// can, else one by one.
func (i *importer) flush(ctx context.Context) error {
	batch := i.batch
	i.batch, i.batchBytes = nil, 0
	if i.dryRun || len(batch) == 0 {
		return i.each(ctx, batch, i.plan)
	}
	ops := make([]znode.Op, len(batch))
	for k, op := range batch {
		ops[k] = op
	}
	results, err := i.tree.Multi(ctx, ops...)
	if err == nil {
		i.created += len(batch)
		return nil
	}
	exists := failedOp(results) >= 0 && errors.Is(err, znode.NodeExists)
	if !exists && !errors.Is(err, errNotInTxn) {
		return err
	}
	return i.each(ctx, batch, i.create)
}

// each calls do for each node of batch until one fails.
func (i *importer) each(ctx context.Context, batch []*znode.Create, do func(context.Context, *znode.Create) error) error {
	for _, op := range batch {
		if err := do(ctx, op); err != nil {
			return err
		}
	}
	return nil
}

// create creates one node, or judges the one that exists.
func (i *importer) create(ctx context.Context, op *znode.Create) error {
	_, err := i.tree.Multi(ctx, op)
	switch {
	case err == nil:
		i.created++
		return nil
	case !errors.Is(err, znode.NodeExists):
		return err
	}
	data, stat, err := i.tree.Get(ctx, op.Path)
	if err != nil {
		return err
	}
	if i.judge(op, data) || !i.overwrite {
		return nil
	}
	// The version keeps a change that somebody makes in this moment.
	if _, err := i.tree.Set(ctx, op.Path, op.Data, stat.Version); err != nil {
		return err
	}
	_, err = i.tree.SetACL(ctx, op.Path, op.ACL, -1)
	return err
}

// plan is create without a change.
func (i *importer) plan(ctx context.Context, op *znode.Create) error {
	data, _, err := i.tree.Get(ctx, op.Path)
	if errors.Is(err, znode.NoNode) {
		i.created++
		return nil
	}
	if err != nil {
		return err
	}
	i.judge(op, data)
	return nil
}

// judge counts a node that exists with data and reports whether it is as it should be.
func (i *importer) judge(op *znode.Create, data []byte) bool {
	switch {
	case bytes.Equal(data, op.Data) && (data == nil) == (op.Data == nil):
		i.same++
		return true
	case i.overwrite:
		i.replaced++
	default:
		i.conflicts++
		i.conflict(op.Path)
	}
	return false
}
