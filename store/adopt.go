package store

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tenure-dev/tenure/session"
)

// Received returns the index of the last entry in a received state that waits to be adopted,
// false if there is none.
func (s *Store) Received() (applied uint64, ok bool, err error) {
	dir := s.dir + incomingSuffix
	if _, err := s.o.FS.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	options := pebbleOptions(&s.o, newHealth())
	options.ErrorIfNotExists, options.ReadOnly = true, true
	db, err := pebble.Open(dir, options)
	if err != nil {
		return 0, false, fmt.Errorf("store: open %s: %w", dir, err)
	}
	m, ok, err := readMeta(db)
	return m.applied, ok, errors.Join(err, db.Close())
}

// Adopt replaces the state by the one that an Incoming has received, which must end with
// log entry applied. The change history begins empty behind it. The writer calls it, with no
// Batch begun, and under the owner's lock exclusively. After an error the store must be
// closed and not be used any more; a crash leaves the one state or the other, and the
// received one, if it is not in place yet, for the next call of Received.
func (s *Store) Adopt(applied uint64) error {
	if got, ok, err := s.Received(); err != nil || !ok || got != applied {
		return errors.Join(fmt.Errorf("store: no state as of entry %d was received (found: %v, as of entry %d)", applied, ok, got), err)
	}
	s.known.close()
	s.use.Lock()
	defer s.use.Unlock()
	err := errors.Join(s.releaseSources(), s.db.Close())
	if err == nil {
		err = s.swap()
	}
	if err == nil {
		err = s.reopen()
	}
	if err != nil {
		s.closed = true
		s.health.fail(err)
		return fmt.Errorf("store: adopting the state as of entry %d: %w", applied, err)
	}
	return nil
}

// releaseSources ends all snapshots of the database that is to be closed.
func (s *Store) releaseSources() error {
	s.sources.Lock()
	var open []*Source
	for x := range s.sources.open {
		open = append(open, x)
	}
	s.sources.Unlock()
	var err error
	for _, x := range open {
		err = errors.Join(err, x.release())
	}
	return err
}

// swap puts the received state into the place of the present one.
func (s *Store) swap() error {
	on, replaced := s.o.FS, s.dir+replacedSuffix
	if err := on.RemoveAll(replaced); err != nil {
		return err
	}
	if err := move(on, s.dir, replaced); err != nil {
		return err
	}
	return move(on, s.dir+incomingSuffix, s.dir)
}

// reopen opens the database that is now in place and forgets everything of the other.
func (s *Store) reopen() error {
	fresh := newStore(s.o)
	db, err := pebble.Open(s.dir, pebbleOptions(&s.o, fresh.health))
	if err != nil {
		return err
	}
	s.db, s.health, s.cache = db, fresh.health, fresh.cache
	s.known = presence{db: db}
	s.sessions, s.windows, s.segments = map[session.ID]*session.Session{}, map[session.ID]*window{}, nil
	if err := s.load(); err != nil {
		return err
	}
	return s.clear()
}

// clear removes what an adoption, or a received state that was not completed, left behind.
func (s *Store) clear() error {
	return errors.Join(s.o.FS.RemoveAll(s.dir+replacedSuffix), s.o.FS.RemoveAll(s.dir+partSuffix))
}

// DropReceived removes a received state that was not adopted. It is given another name first:
// after a crash within its removal nothing may be left that looks like a received state.
func (s *Store) DropReceived() error {
	on, dir, part := s.o.FS, s.dir+incomingSuffix, s.dir+partSuffix
	if _, err := on.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := on.RemoveAll(part); err != nil {
		return err
	}
	return errors.Join(move(on, dir, part), on.RemoveAll(part))
}
