package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/cockroachdb/pebble/v2"
)

// ErrReplaced is what a Source ends with once the store has adopted another state.
var ErrReplaced = errors.New("store: the state was replaced by a received one")

// Source is the state as it was at one moment, to be written as a snapshot, in several
// pieces if need be. Commits go on meanwhile. It belongs to one goroutine, and must be
// closed: as long as it is open the disk keeps what it needs.
type Source struct {
	s    *Store
	snap *pebble.Snapshot // nil once closed, or replaced; see Store.use
	meta meta
}

// Snapshot returns the state as of the last Commit.
func (s *Store) Snapshot() (*Source, error) {
	s.use.RLock()
	defer s.use.RUnlock()
	if s.closed {
		return nil, s.health.err()
	}
	x := &Source{s: s, snap: s.db.NewSnapshot()}
	m, _, err := readMeta(x.snap)
	if err != nil {
		return nil, errors.Join(err, x.snap.Close())
	}
	x.meta = m
	s.sources.Lock()
	s.sources.open[x] = struct{}{}
	s.sources.Unlock()
	return x, nil
}

// Applied is the index of the last log entry in the state.
func (x *Source) Applied() uint64 { return x.meta.applied }

// Close lets go of the state. Further calls do nothing.
func (x *Source) Close() error {
	x.s.use.RLock()
	defer x.s.use.RUnlock()
	return x.release()
}

// release is Close where nobody else uses the database's snapshots.
func (x *Source) release() error {
	x.s.sources.Lock()
	defer x.s.sources.Unlock()
	delete(x.s.sources.open, x)
	snap := x.snap
	if x.snap = nil; snap == nil {
		return nil
	}
	return snap.Close()
}

// WriteSnapshot writes the state as of the last Commit before the call to w. Commits
// go on meanwhile and are not in it. Errors of w end it.
func (s *Store) WriteSnapshot(w io.Writer) (SnapshotInfo, error) {
	x, err := s.Snapshot()
	if err != nil {
		return SnapshotInfo{}, err
	}
	info, err := x.Write(w, nil)
	return info, errors.Join(err, x.Close())
}

// Write writes the snapshot to w, from the beginning or from where an Incoming says that
// it should go on. Nothing is locked while w is written to. Errors of w end it. Bytes of
// the result is what this call wrote.
func (x *Source) Write(w io.Writer, from []byte) (SnapshotInfo, error) {
	m := &x.meta
	out := snapshotWriter{w: w, info: SnapshotInfo{Applied: m.applied, Zxid: m.zxid, Digest: m.digest}}
	var err error
	if from != nil {
		if out.chunks, out.info.Records, out.last, err = decodePosition(from); err != nil {
			return out.info, err
		}
	}
	if err := out.header(m); err != nil {
		return out.info, err
	}
	for {
		if err := x.fill(&out); err != nil {
			return out.info, err
		}
		if len(out.chunk) == 0 {
			return out.info, out.trailer()
		}
		if err := out.flush(); err != nil {
			return out.info, err
		}
	}
}

// fill gathers the next chunk; it stays empty at the end.
func (x *Source) fill(out *snapshotWriter) error {
	x.s.use.RLock()
	defer x.s.use.RUnlock()
	if x.snap == nil {
		return ErrReplaced
	}
	first := byte('a')
	if len(out.last) > 0 {
		first = out.last[0]
	}
	for table := first; table <= 'z' && len(out.chunk) < chunkBytes; table++ {
		if !isReplicated(table) {
			continue
		}
		b := tableBounds(table)
		if len(out.last) > 0 && table == first {
			b.lower = append(bytes.Clone(out.last), 0)
		}
		if err := scan(x.snap, b, out.record); err != nil {
			return err
		}
	}
	return nil
}

type snapshotWriter struct {
	w      io.Writer
	info   SnapshotInfo
	chunk  []byte // with room for length and CRC in front
	chunks uint64
	last   []byte // key before the next one
}

const chunkHeaderBytes = 8

func (s *snapshotWriter) write(b []byte) error {
	n, err := s.w.Write(b)
	s.info.Bytes += int64(n)
	if err != nil {
		return fmt.Errorf("store: write snapshot at byte %d: %w", s.info.Bytes, err)
	}
	return nil
}

func (s *snapshotWriter) header(m *meta) error {
	record := appendMeta(nil, m)
	b := []byte(snapshotMagic)
	b = binary.LittleEndian.AppendUint32(b, snapshotFormat)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(record)))
	b = append(b, record...)
	return s.write(binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli)))
}

// record adds a record to the chunk, and ends the scan when it is full.
func (s *snapshotWriter) record(key, value []byte) error {
	if len(s.chunk) == 0 {
		s.chunk = append(s.chunk, make([]byte, chunkHeaderBytes)...)
	}
	s.chunk = binary.AppendUvarint(s.chunk, uint64(len(key)))
	s.chunk = append(s.chunk, key...)
	s.chunk = binary.AppendUvarint(s.chunk, uint64(len(value)))
	s.chunk = append(s.chunk, value...)
	s.last = append(s.last[:0], key...)
	s.info.Records++
	if len(s.chunk) < chunkBytes {
		return nil
	}
	return errStop
}

func (s *snapshotWriter) flush() error {
	payload := s.chunk[chunkHeaderBytes:]
	binary.LittleEndian.PutUint32(s.chunk, uint32(len(payload)))
	binary.LittleEndian.PutUint32(s.chunk[4:], chunkCRC(s.chunks, payload))
	s.chunks++
	err := s.write(s.chunk)
	s.chunk = s.chunk[:0]
	return err
}

func chunkCRC(number uint64, payload []byte) uint32 {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], number)
	return crc32.Update(crc32.Checksum(b[:], castagnoli), castagnoli, payload)
}

func (s *snapshotWriter) trailer() error {
	b := binary.LittleEndian.AppendUint32(nil, 0)
	b = binary.LittleEndian.AppendUint64(b, uint64(s.info.Records))
	b = binary.LittleEndian.AppendUint64(b, s.chunks)
	b = binary.LittleEndian.AppendUint64(b, s.info.Digest)
	return s.write(binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli)))
}

// A position in a snapshot is behind some of its chunks: how many, how many records are in
// them, and the last key.
func appendPosition(dst []byte, chunks uint64, records int64, last []byte) []byte {
	dst = binary.AppendUvarint(dst, chunks)
	dst = binary.AppendUvarint(dst, uint64(records))
	return append(dst, last...)
}

func decodePosition(b []byte) (chunks uint64, records int64, last []byte, err error) {
	chunks, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, 0, nil, fmt.Errorf("store: %d bytes are no position in a snapshot", len(b))
	}
	count, m := binary.Uvarint(b[n:])
	if last = b[n+max(m, 0):]; m <= 0 || len(last) == 0 || !isReplicated(last[0]) {
		return 0, 0, nil, fmt.Errorf("store: %d bytes are no position in a snapshot", len(b))
	}
	return chunks, int64(count), bytes.Clone(last), nil
}
