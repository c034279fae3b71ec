package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/tenure-dev/tenure/client"
	"github.com/tenure-dev/tenure/znode"
)

const (
	// Bounds of one transaction of a recursive delete: far below what a server takes.
	deleteOpsMax   = 500
	deleteBytesMax = 256 << 10
	// refillsMax bounds how often nodes are emptied again because others create children
	// under them meanwhile.
	refillsMax = 100
)

// deletableTree is what a recursive delete needs of a server; *conn is one.
type deletableTree interface {
	lister
	Multi(ctx context.Context, ops ...znode.Op) ([]znode.Result, error)
}

// deleter deletes a subtree from the leaves up, in bounded transactions and memory.
// It is used by one goroutine.
type deleter struct {
	tree    deletableTree
	deleted int // certainly
	unknown int // nodes of a transaction whose outcome is unknown
	refills int // how often a node got new children meanwhile

	batch      []string // post-order: children before their parents
	batchBytes int
}

// deleteTree deletes path and all below it. Nodes that others delete meanwhile are
// not counted. It fails with the first error; d.deleted is then still exact.
func (d *deleter) deleteTree(ctx context.Context, path string) error {
	if err := d.add(ctx, path, true); err != nil {
		return err
	}
	return d.flush(ctx)
}

// add puts what is below path, if anything, and path itself into the batch.
func (d *deleter) add(ctx context.Context, path string, hasChildren bool) error {
	if hasChildren {
		for c, err := range children(ctx, d.tree, path, true) {
			if errors.Is(err, znode.NoNode) {
				return d.goneMeanwhile(err)
			}
			if err != nil {
				return err
			}
			if err := d.add(ctx, znode.Join(path, c.name), c.stat.NumChildren > 0); err != nil {
				return err
			}
		}
	}
	if len(d.batch) >= deleteOpsMax || d.batchBytes+len(path) > deleteBytesMax {
		if err := d.flush(ctx); err != nil {
			return err
		}
	}
	d.batch = append(d.batch, path)
	d.batchBytes += len(path)
	return nil
}

// goneMeanwhile decides about a node that is not there: it is an error only if
// nothing was found at all, that is, at the start.
func (d *deleter) goneMeanwhile(err error) error {
	if d.deleted == 0 && len(d.batch) == 0 {
		return err
	}
	return nil
}

// flush deletes the batch.
func (d *deleter) flush(ctx context.Context) error {
	batch := d.batch
	d.batch, d.batchBytes = nil, 0
	return d.deletePaths(ctx, batch)
}

// deletePaths deletes paths, which are in post-order, and what others created below
// them since they were listed.
func (d *deleter) deletePaths(ctx context.Context, paths []string) error {
	for len(paths) > 0 {
		failed, err := d.deleteAll(ctx, paths)
		switch {
		case err == nil:
			return nil
		case failed >= 0 && errors.Is(err, znode.NoNode): // somebody was faster
			paths = append(paths[:failed:failed], paths[failed+1:]...)
		case failed >= 0 && errors.Is(err, znode.NotEmpty) && d.refills < refillsMax:
			d.refills++
			if err := d.deletePaths(ctx, paths[:failed]); err != nil {
				return err
			}
			if err := d.deleteTree(ctx, paths[failed]); err != nil {
				return err
			}
			paths = paths[failed+1:]
		default:
			return err
		}
	}
	return nil
}

// deleteAll deletes paths in one transaction. On failure it returns which of them was
// to blame, -1 if that is not known.
func (d *deleter) deleteAll(ctx context.Context, paths []string) (failed int, err error) {
	ops := make([]znode.Op, len(paths))
	for i, path := range paths {
		ops[i] = &znode.Delete{Path: path, Version: -1}
	}
	results, err := d.tree.Multi(ctx, ops...)
	if err == nil {
		d.deleted += len(paths)
		return -1, nil
	}
	if failed = failedOp(results); failed < 0 || failed >= len(paths) {
		failed = -1
		if !isDefinite(err) {
			d.unknown = len(paths)
		}
	}
	return failed, err
}

// explain says how far the delete of path got before err.
func (d *deleter) explain(path string, err error) error {
	if d.unknown > 0 {
		return fmt.Errorf("rm -r %s: deleted %d nodes, and %d more or none of them (outcome unknown): %w",
			path, d.deleted, d.unknown, err)
	}
	return fmt.Errorf("rm -r %s: deleted %d nodes, then failed: %w", path, d.deleted, err)
}

// failedOp returns the index of the operation that failed a transaction, -1 if the
// results do not say.
func failedOp(results []znode.Result) int {
	for i, r := range results {
		if r.Err != znode.OK && r.Err != znode.RuntimeInconsistency {
			return i
		}
	}
	return -1
}

// isDefinite reports whether err leaves no doubt that nothing was changed.
func isDefinite(err error) bool {
	var definite *client.Error
	return errors.As(err, &definite) || errors.Is(err, client.ErrUnavailable)
}
