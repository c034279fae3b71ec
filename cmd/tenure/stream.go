package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
)

// printStream prints what stream yields, each at once, until there were count of them, 0
// for no end, or --timeout or an interrupt ends it. It is an error if fewer than count came.
func printStream[V any](ctx context.Context, a *app, count int, stream func(context.Context) iter.Seq2[V, error], show func(V) error) error {
	bounded, cancel := ctx, context.CancelFunc(func() {})
	if a.timeout > 0 {
		bounded, cancel = context.WithTimeout(ctx, a.timeout)
	}
	defer cancel()
	seen := 0
	for v, err := range stream(bounded) {
		if err != nil {
			return err
		}
		if err := errors.Join(show(v), a.out.Flush()); err != nil {
			return err
		}
		if seen++; seen == count {
			return nil
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if seen < count {
		return fmt.Errorf("%d of %d lines within %v", seen, count, a.timeout)
	}
	return nil
}
