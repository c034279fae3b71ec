package zk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/znode"
)

// renewalBytesMax bounds one transaction of a renewal: more checks than fit are made in
// several. It is half of what servers take.
const renewalBytesMax = requestBytesMax / 2

// Renew is recipes.Session.Renew: a transaction that checks that every held znode exists.
// It is committed by a quorum like a write, in one order with whatever may remove those
// znodes. Without any it checks the root of the store.
func (s *session) Renew(ctx context.Context, held ...recipes.Held) (recipes.Proof, []error, error) {
	errs := make([]error, len(held))
	paths, index := make([]string, len(held)), make([]int, len(held)) // index in held
	for i, h := range held {
		var err error
		if paths[i], err = s.store.full("renew", h.Path); err != nil {
			return recipes.Proof{}, nil, err
		}
		index[i] = i
	}
	var earliest time.Time
	for len(paths) > 0 {
		n := renewalChunk(paths)
		began, missing, err := s.checkPaths(ctx, paths[:n])
		switch {
		case err != nil:
			return recipes.Proof{}, nil, fmt.Errorf("renew: %w", err)
		case missing >= 0:
			errs[index[missing]] = znode.NoNode
			paths, index = slices.Delete(paths, missing, missing+1), slices.Delete(index, missing, missing+1)
		default:
			if earliest.IsZero() || began.Before(earliest) {
				earliest = began
			}
			paths, index = paths[n:], index[n:]
		}
	}
	if earliest.IsZero() {
		var err error
		if earliest, err = s.checkRoot(ctx); err != nil {
			return recipes.Proof{}, nil, fmt.Errorf("renew: %w", err)
		}
	}
	return recipes.Proof{Sent: earliest, TTL: s.Timeout()}, errs, nil
}

// checkRoot proves the session where nothing is held. The chroot may be gone, the
// server's root cannot be.
func (s *session) checkRoot(ctx context.Context) (time.Time, error) {
	for _, path := range []string{s.store.below(znode.Root), znode.Root} {
		began, missing, err := s.checkPaths(ctx, []string{path})
		if err != nil || missing < 0 {
			return began, err
		}
	}
	return time.Time{}, znode.NoNode
}

// renewalChunk returns how many of paths fit in one transaction, 1 at least.
func renewalChunk(paths []string) int {
	size := requestOverhead
	for i, p := range paths {
		if size += opOverhead + len(p); size > renewalBytesMax && i > 0 {
			return i
		}
	}
	return len(paths)
}

// checkPaths checks that paths exist. It returns when the request that was answered began
// to be written, or the index of a path that is missing, else -1.
func (s *session) checkPaths(ctx context.Context, paths []string) (began time.Time, missing int, err error) {
	requests := make([]any, len(paths))
	for i, p := range paths {
		requests[i] = &gozk.CheckVersionRequest{Path: p, Version: -1}
	}
	began, t, err := s.check(ctx, requests)
	if err != nil {
		return time.Time{}, -1, err
	}
	if why := t.reason(); errors.Is(why, znode.NoNode) {
		return time.Time{}, t.refused, nil
	} else if why != nil {
		return time.Time{}, -1, fmt.Errorf("check %s: %w", s.store.own(paths[t.refused]), why)
	}
	return began, -1, nil
}

// checked is a transaction that only checks, with when it began to be written.
type checked struct {
	transaction
	began time.Time
}

// check makes a transaction that only checks, again until it is answered. There is one at
// a time in a session, since what is seen on the wire does not tell whose it is.
func (s *session) check(ctx context.Context, requests []any) (time.Time, transaction, error) {
	for {
		select {
		case s.renewing <- struct{}{}:
		case <-ctx.Done():
			return time.Time{}, transaction{}, ctx.Err()
		case <-s.done:
			return time.Time{}, transaction{}, s.Err()
		}
		conn, err := s.enter(ctx)
		if err != nil {
			<-s.renewing
			return time.Time{}, transaction{}, err
		}
		c, err := perform(ctx, s, false, func() (checked, error) {
			defer func() { <-s.renewing }() // not before the library is done with it
			called := time.Now()
			t, err := transact(conn, requests)
			return checked{t, s.line.checkBegan(called)}, err
		})
		if err != errAgain {
			return c.began, c.transaction, err
		}
	}
}
