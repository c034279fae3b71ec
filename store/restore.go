package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// RestoreOptions configures Restore. The zero value restores the state as it was,
// for a member of the same ensemble.
type RestoreOptions struct {
	FS  vfs.FS       // nil = the real one
	Log *slog.Logger // nil = nothing is logged
	// RaiseEpoch makes the state the beginning of a new ensemble: the last zxid
	// becomes the first of the next epoch (high half plus one, low half zero), so
	// that no zxid is given twice and fencing tokens grow, and the applied index
	// becomes Applied. Sessions and their ephemerals stay: clients resume them, or
	// they expire.
	RaiseEpoch bool
	// Applied is the index that the new ensemble's log begins after; only with
	// RaiseEpoch.
	Applied uint64
}

// Restore makes a store in dir from the snapshot in r. dir must be empty or not
// exist. It is built beside dir, in dir.restoring, and gets its name only when it is
// complete, checked and durable; after an error there is nothing at dir. The change
// history begins empty: watches from before get a gap.
func Restore(dir string, r io.Reader, o RestoreOptions) (SnapshotInfo, error) {
	so := Options{FS: o.FS, Log: o.Log}.withDefaults()
	if err := vacate(so.FS, dir); err != nil {
		return SnapshotInfo{}, err
	}
	b, err := newBuilder(dir+".restoring", &so)
	if err != nil {
		return SnapshotInfo{}, err
	}
	m := meta{}
	if err = b.read(r); err == nil {
		m, err = o.meta(b.in.meta)
	}
	if err == nil {
		err = b.finish(m)
	}
	if err == nil {
		err = move(so.FS, b.dir, dir)
	}
	if err != nil {
		return SnapshotInfo{}, errors.Join(err, b.discard())
	}
	return b.in.info, nil
}

// vacate removes dir if it is empty and refuses it if it is not.
func vacate(on vfs.FS, dir string) error {
	names, err := on.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("store: restore: %w", err)
	}
	if len(names) > 0 {
		return fmt.Errorf("store: restore: directory %s is not empty: it has %s", dir, names[0])
	}
	if err := on.Remove(dir); err != nil {
		return fmt.Errorf("store: restore: %w", err)
	}
	return nil
}

// meta turns a snapshot's meta into that of the restored store.
func (o *RestoreOptions) meta(m meta) (meta, error) {
	if o.RaiseEpoch {
		epoch := m.zxid>>32 + 1
		if epoch > math.MaxInt32 {
			return m, fmt.Errorf("store: restore: zxid %#x is of the last epoch", m.zxid)
		}
		m.zxid, m.applied = epoch<<32, o.Applied
	}
	return m, nil
}
