package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"

	"github.com/cockroachdb/pebble/v2"
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

// restoreBatchBytes is how much Restore gives to Pebble at a time.
const restoreBatchBytes = 1 << 20

// Restore makes a store in dir from the snapshot in r. dir must be empty or not
// exist. It is built beside dir, in dir.restoring, and gets its name only when it is
// complete, checked and durable; after an error there is nothing at dir. The change
// history begins empty: watches from before get a gap.
func Restore(dir string, r io.Reader, o RestoreOptions) (SnapshotInfo, error) {
	so := Options{FS: o.FS, Log: o.Log}.withDefaults()
	if err := vacate(so.FS, dir); err != nil {
		return SnapshotInfo{}, err
	}
	temp := dir + ".restoring"
	if err := so.FS.RemoveAll(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return SnapshotInfo{}, fmt.Errorf("store: restore: remove what an earlier one left: %w", err)
	}
	info, err := restoreInto(temp, r, &so, &o)
	if err == nil {
		err = putInPlace(so.FS, temp, dir)
	}
	if err != nil {
		return SnapshotInfo{}, errors.Join(err, so.FS.RemoveAll(temp))
	}
	return info, nil
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

// putInPlace renames temp to dir durably.
func putInPlace(on vfs.FS, temp, dir string) error {
	if err := on.Rename(temp, dir); err != nil {
		return fmt.Errorf("store: restore: %w", err)
	}
	parent, err := on.OpenDir(on.PathDir(dir))
	if err != nil {
		return fmt.Errorf("store: restore: %w", err)
	}
	if err := errors.Join(parent.Sync(), parent.Close()); err != nil {
		return fmt.Errorf("store: restore: %w", err)
	}
	return nil
}

// restoreInto writes the snapshot into a new Pebble in dir and closes it.
func restoreInto(dir string, r io.Reader, so *Options, o *RestoreOptions) (info SnapshotInfo, err error) {
	disk := newHealth()
	options := pebbleOptions(so, disk)
	options.ErrorIfExists = true
	db, err := pebble.Open(dir, options)
	if err != nil {
		return info, fmt.Errorf("store: restore: %w", err)
	}
	batch := db.NewBatch()
	defer func() { err = errors.Join(err, batch.Close(), db.Close()) }()
	info, m, err := readSnapshot(r, func(key, value []byte) error {
		if err := errors.Join(batch.Set(key, value, nil), disk.err()); err != nil || batch.Len() < restoreBatchBytes {
			return err
		}
		if err := errors.Join(db.Apply(batch, pebble.NoSync), batch.Close()); err != nil {
			return err
		}
		batch = db.NewBatch()
		return nil
	})
	if err != nil {
		return info, err
	}
	if err := restoredMeta(&m, o); err != nil {
		return info, err
	}
	if err := batch.Set(metaKey, appendMeta(nil, &m), nil); err != nil {
		return info, err
	}
	if err := db.Apply(batch, pebble.NoSync); err != nil {
		return info, err
	}
	return info, disk.flush(db)
}

// restoredMeta turns a snapshot's meta into that of the restored store.
func restoredMeta(m *meta, o *RestoreOptions) error {
	if o.RaiseEpoch {
		epoch := m.zxid>>32 + 1
		if epoch > math.MaxInt32 {
			return fmt.Errorf("store: restore: zxid %#x is of the last epoch", m.zxid)
		}
		m.zxid, m.applied = epoch<<32, o.Applied
	}
	m.counts.HistoryFirst, m.counts.HistoryCount, m.counts.HistoryBytes = m.zxid, 0, 0
	m.open, m.openedMs = segment{}, 0
	return nil
}
