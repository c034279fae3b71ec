package server

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/tenure-dev/tenure/replica"
	"github.com/tenure-dev/tenure/store"
	"github.com/tenure-dev/tenure/wire"
)

// CheckReport is what CheckDataDir found.
type CheckReport struct {
	// Problems name what is wrong, one sentence each; none if all is sound.
	Problems []string
	// Applied and Zxid are how far the state has come; Replayed is how many log entries
	// behind it were read and decoded.
	Applied  uint64
	Zxid     int64
	Replayed int
	Counts   store.Counts
}

// CheckDataDir verifies the data directory of a server that is not running: every
// checksum, every record and every rule of the state, then the whole log, and that
// the two belong together. Nothing is written. An error means that it could not be
// checked.
func CheckDataDir(dir string, log *slog.Logger) (CheckReport, error) {
	state := filepath.Join(dir, stateDir)
	r, behind, err := checkState(dir, state, log)
	if err == nil && !behind {
		return r, nil
	}
	// The next start may put a received state in its place: see Server.Recover.
	received := store.ReceivedDir(state)
	if _, errReceived := os.Stat(received); errReceived == nil {
		r, _, err = checkState(dir, received, log)
	}
	return r, err
}

// checkState is CheckDataDir with the state in its place or elsewhere; behind is whether the
// log does not reach back to it.
func checkState(dir, state string, log *slog.Logger) (r CheckReport, behind bool, err error) {
	if _, err := os.Stat(state); err != nil {
		return r, false, fmt.Errorf("data-dir = %q holds no state: %w", dir, err)
	}
	found, err := store.Check(state, store.Options{Log: log})
	if err != nil {
		return r, false, err
	}
	if neverFlushed(found.Problems) {
		return r, r.addLog(dir, log), nil
	}
	for _, p := range found.Problems {
		r.Problems = append(r.Problems, "state: "+p.String())
	}
	r.Applied, r.Zxid, r.Counts = found.Applied, found.Zxid, found.Counts
	if len(found.Problems) == 0 { // the log is judged by the state
		behind = r.addLog(dir, log)
	}
	return r, behind, nil
}

// neverFlushed reports whether all that a check of the state misses is its beginning:
// a server that was killed before its first flush has everything in its log. Records
// without their meta would also disagree with its counts.
func neverFlushed(problems []store.Problem) bool {
	for _, p := range problems {
		if p.Rule != "meta" && p.Rule != "znode.system-node" {
			return false
		}
	}
	return len(problems) > 0 && problems[0].Rule == "meta"
}

// addLog checks the log, and reports whether the state ends before it begins. A restored
// directory that never served has none yet.
func (r *CheckReport) addLog(dir string, log *slog.Logger) (behind bool) {
	path := filepath.Join(dir, logDir)
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) && r.Applied == newLogBegins {
		return false
	}
	if err == nil {
		err = checkLog(path, r, log)
	}
	if err != nil {
		r.Problems = append(r.Problems, "log: "+err.Error())
	}
	return errors.Is(err, replica.ErrStateBehindLog)
}

// checkLog verifies the log and decodes what the state does not have.
func checkLog(dir string, r *CheckReport, log *slog.Logger) error {
	return replica.Check(dir, replica.Options{Log: log}, r.Applied, func(e replica.Entry) error {
		if len(e.Data) == 0 {
			return nil
		}
		if _, _, err := wire.DecodeEntry(e.Data); err != nil {
			return fmt.Errorf("entry %d: %w", e.Index, err)
		}
		r.Replayed++
		return nil
	})
}

// newLogBegins is the index that a log without entries ends with: entry 1 of an
// ensemble is its membership and exists in no log.
const newLogBegins = 1

// RestoreDataDir makes dir, which must not hold a state or a log, the data directory of
// a new ensemble from the snapshot in from. All zxids given from then on are above all
// that the snapshot's ensemble ever gave (a new epoch), so that fencing tokens grow.
func RestoreDataDir(dir string, from io.Reader, log *slog.Logger) (store.SnapshotInfo, error) {
	for _, sub := range []string{stateDir, logDir} {
		path := filepath.Join(dir, sub)
		entries, err := os.ReadDir(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return store.SnapshotInfo{}, fmt.Errorf("restore: %w", err)
		}
		if len(entries) > 0 {
			return store.SnapshotInfo{}, fmt.Errorf("restore: %s is not empty; restore only makes a new data directory", path)
		}
	}
	return store.Restore(filepath.Join(dir, stateDir), from, store.RestoreOptions{Log: log, RaiseEpoch: true, Applied: newLogBegins})
}
