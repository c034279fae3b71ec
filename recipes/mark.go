package recipes

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tenure-dev/tenure/znode"
)

// createMarked makes the sequential ephemeral path+number, whose name contains the mark
// guid, exactly once, also where answers are lost: what was created without an answer is
// found by its mark. The directory is made if it is missing. If createMarked fails, what
// it may have made is removed in the background.
func createMarked(ctx context.Context, s Store, sess Session, o Options, dirKind znode.Kind, path, guid string, data []byte) (string, error) {
	dir, _ := znode.Split(path)
	var b backoff
	for made := false; ; {
		created, err := s.Create(ctx, path, data, CreateSpec{Kind: znode.Ephemeral, Sequential: true})
		if errors.Is(err, ErrUncertain) && ctx.Err() == nil && sess.Err() == nil {
			created, err = findMarked(ctx, s, sess, dir, guid)
			if err == nil && created == "" {
				continue // it was not applied, and never will be
			}
		}
		switch {
		case err == nil:
			return created, nil
		case errors.Is(err, znode.NoNode):
			if err := ensureDir(ctx, s, dir, dirKind); err != nil {
				return "", err
			}
			if !made {
				made = true
				continue
			}
		case !transient(err) || ctx.Err() != nil || sess.Err() != nil:
			sweep(s, sess, o, dir, guid)
			return "", err
		}
		if err := pauseIn(ctx, sess, b.next()); err != nil {
			sweep(s, sess, o, dir, guid)
			return "", err
		}
	}
}

// marked returns the paths of the directory's children that have the mark, lowest first.
//
// Sync comes first, for two reasons: a member that lags may not show the znode yet; and
// requests of one session are applied in order, so that a create sent before the Sync
// was applied before its answer, or never will be.
func marked(ctx context.Context, s Store, dir, guid string) ([]string, error) {
	if err := s.Sync(ctx, dir); err != nil && !errors.Is(err, znode.NoNode) {
		return nil, err
	}
	names, _, err := s.Children(ctx, dir)
	if errors.Is(err, znode.NoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, e := range parseLine(names) {
		if strings.Contains(e.name, guid) {
			paths = append(paths, znode.Join(dir, e.name))
		}
	}
	return paths, nil
}

// findMarked looks until it knows whether the create was applied. It returns the znode
// if the session owns it, "" if there is none, and removes what is not to be.
func findMarked(ctx context.Context, s Store, sess Session, dir, guid string) (string, error) {
	var b backoff
	for {
		path, err := adopt(ctx, s, sess, dir, guid)
		if err == nil || !transient(err) {
			return path, err
		}
		if err := pauseIn(ctx, sess, b.next()); err != nil {
			return "", fmt.Errorf("%w: %w", ErrUncertain, err)
		}
	}
}

func adopt(ctx context.Context, s Store, sess Session, dir, guid string) (mine string, err error) {
	paths, err := marked(ctx, s, dir, guid)
	if err != nil {
		return "", err
	}
	for _, path := range paths {
		_, stat, err := s.Get(ctx, path)
		switch {
		case errors.Is(err, znode.NoNode):
			continue
		case err != nil:
			return "", err
		case mine == "" && int64(stat.EphemeralOwner) == sess.ID():
			mine = path
		default: // of a session that is over, or a second one
			if err := s.Delete(ctx, path, Always()); err != nil && !errors.Is(err, znode.NoNode) {
				return "", err
			}
		}
	}
	return mine, nil
}

// sweep removes what has the mark, as long as its session lives. That is the next one if
// the create was sent when sess had just ended.
func sweep(s Store, sess Session, o Options, dir, guid string) {
	what, swept := "removal of what was created as "+guid, false
	remove := func(ctx context.Context) error {
		paths, err := marked(ctx, s, dir, guid)
		for _, path := range paths {
			if derr := s.Delete(ctx, path, Always()); derr != nil && !errors.Is(derr, znode.NoNode) {
				err = errors.Join(err, derr)
			}
		}
		swept = err == nil
		return err
	}
	sess.Upkeep().ensure(o.Log, what, remove, func(err error) {
		if swept || err != nil {
			return
		}
		<-sess.Done() // soon: its upkeep has ended
		if next := s.Session(); next != sess {
			next.Upkeep().ensure(o.Log, what, remove, nil)
		}
	})
}
