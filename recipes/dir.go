package recipes

import (
	"context"
	"errors"
	"fmt"

	"github.com/tenure-dev/tenure/znode"
)

// ensureTries bounds how often a directory is made anew because a reaper or somebody
// else removed it, or its parent, in between.
const ensureTries = 10

// ensureDir makes the znode path of the given kind if it is missing, and its missing
// parents as containers. This is the one place that decides what directories are.
func ensureDir(ctx context.Context, s Store, path string, kind znode.Kind) error {
	if path == znode.Root {
		return nil
	}
	var err error
	var b backoff
	for range ensureTries {
		_, err = s.Create(ctx, path, nil, CreateSpec{Kind: kind})
		switch {
		case err == nil, errors.Is(err, znode.NodeExists):
			return nil
		case errors.Is(err, znode.NoNode):
			parent, _ := znode.Split(path)
			if err := ensureDir(ctx, s, parent, znode.Container); err != nil {
				return err
			}
		case ctx.Err() == nil && transient(err):
			if err := pause(ctx, b.next()); err != nil {
				return err
			}
		default:
			return fmt.Errorf("create directory %s: %w", path, err)
		}
	}
	return fmt.Errorf("create directory %s: %d tries: %w", path, ensureTries, err)
}

// validateDir is the rule for a recipe's path.
func validateDir(path string) error {
	if path == znode.Root {
		return fmt.Errorf("%w: path /: a recipe needs a directory of its own", ErrInvalid)
	}
	if err := znode.ValidatePath(path); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}
