package recipes

import (
	"context"
	"errors"
	"fmt"

	"github.com/tenure-dev/tenure/znode"
)

// SetFloor makes every later token of the election, mutex, semaphore or read-write lock at
// path higher than floor: for an operator whose store was rebuilt, so that its zxids
// began anew and the guards of resources refuse the tokens made of them. A floor below
// the present one changes nothing. Repeat it after an ErrUncertain.
func SetFloor(ctx context.Context, s Store, path string, floor Token) error {
	if err := validateDir(path); err != nil {
		return err
	}
	if err := ensureDir(ctx, s, path, znode.Persistent); err != nil {
		return err
	}
	return editRecord(ctx, s, path, func(r *record) bool {
		raise := floor > r.Token
		r.Unclaimed = r.Unclaimed || r.Token == 0 && len(r.Holders) == 0
		r.Token = max(r.Token, floor)
		return raise
	})
}

// editRecord changes a record from outside, until nobody comes in between. edit returns
// whether there is anything to change. The version rises by two: see record.
func editRecord(ctx context.Context, s Store, path string, edit func(*record) bool) error {
	var b backoff
	for {
		data, stat, err := s.Get(ctx, path)
		if err != nil {
			return fmt.Errorf("record of %s: %w", path, err)
		}
		r, err := parseRecord(path, data)
		if err != nil {
			return err
		}
		if !edit(&r) {
			return nil
		}
		set := r.encode()
		_, err = s.Multi(ctx, OpSet(path, set, IfVersion(stat.Version)), OpSet(path, set, Always()))
		if err == nil || !errors.Is(err, znode.BadVersion) {
			return err
		}
		if err := pause(ctx, b.next()); err != nil {
			return err
		}
	}
}
