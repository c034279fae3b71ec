package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"strings"
)

// A snapshot is a stream of the replicated records, in key order, without the change
// history. Integers are little-endian.
//
//	header:  "TENURESN", format (4), length of meta (4), meta record, CRC (4)
//	chunk:   length (4, above 0), CRC (4), records
//	record:  uvarint length of the key, key, uvarint length of the value, value
//	trailer: 0 (4), records (8), chunks (8), digest (8), CRC (4)
//
// CRCs are CRC-32C; a chunk's covers its number (8) and its records, so that a chunk
// cannot be left out or move. A stream that does not end with its trailer is no
// snapshot.
const (
	snapshotMagic  = "TENURESN"
	snapshotFormat = 1
	chunkBytes     = 256 << 10
	// chunkBytesMax bounds what a reader allocates. A chunk is longer than
	// chunkBytes only by one record.
	chunkBytesMax = 64 << 20
	metaBytesMax  = 64 << 10
	trailerBytes  = 8 + 8 + 8 + 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrSnapshot is what a stream that is not a whole and sound snapshot is refused
// with, wrapped in an error that says where and why.
var ErrSnapshot = errors.New("store: not a valid snapshot")

// SnapshotInfo describes a snapshot.
type SnapshotInfo struct {
	Applied uint64 // index of the last log entry in it
	Zxid    int64  // of the newest change
	Digest  uint64
	Records int64
	Bytes   int64 // length of the stream
}

// WriteSnapshot writes the state as of the last Commit before the call to w. Commits
// go on meanwhile and are not in it. Errors of w end it.
func (s *Store) WriteSnapshot(w io.Writer) (SnapshotInfo, error) {
	snap := s.db.NewSnapshot()
	defer snap.Close()
	m, _, err := readMeta(snap)
	if err != nil {
		return SnapshotInfo{}, err
	}
	out := snapshotWriter{w: w, info: SnapshotInfo{Applied: m.applied, Zxid: m.zxid, Digest: m.digest}}
	if err := out.header(&m); err != nil {
		return out.info, err
	}
	for table := byte('a'); table <= 'z'; table++ {
		if !isReplicated(table) {
			continue
		}
		if err := scan(snap, tableBounds(table), out.record); err != nil {
			return out.info, err
		}
	}
	return out.info, out.trailer()
}

type snapshotWriter struct {
	w      io.Writer
	info   SnapshotInfo
	chunk  []byte // with room for length and CRC in front
	chunks uint64
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

func (s *snapshotWriter) record(key, value []byte) error {
	if len(s.chunk) == 0 {
		s.chunk = append(s.chunk, make([]byte, chunkHeaderBytes)...)
	}
	s.chunk = binary.AppendUvarint(s.chunk, uint64(len(key)))
	s.chunk = append(s.chunk, key...)
	s.chunk = binary.AppendUvarint(s.chunk, uint64(len(value)))
	s.chunk = append(s.chunk, value...)
	s.info.Records++
	if len(s.chunk) < chunkBytes {
		return nil
	}
	return s.flush()
}

func (s *snapshotWriter) flush() error {
	if len(s.chunk) == 0 {
		return nil
	}
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
	if err := s.flush(); err != nil {
		return err
	}
	b := binary.LittleEndian.AppendUint32(nil, 0)
	b = binary.LittleEndian.AppendUint64(b, uint64(s.info.Records))
	b = binary.LittleEndian.AppendUint64(b, s.chunks)
	b = binary.LittleEndian.AppendUint64(b, s.info.Digest)
	return s.write(binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli)))
}

// VerifySnapshot reads a whole snapshot and checks it: checksums, that every record
// decodes, counts and digest. It keeps one chunk and the sessions' windows in
// memory. What it refuses is ErrSnapshot.
func VerifySnapshot(r io.Reader) (SnapshotInfo, error) {
	info, _, err := readSnapshot(r, func(key, value []byte) error { return nil })
	return info, err
}

// readSnapshot checks the snapshot in r and calls each with its records, which are
// only valid during the call. Only if it returns no error was all of it sound.
func readSnapshot(r io.Reader, each func(key, value []byte) error) (SnapshotInfo, meta, error) {
	in := snapshotReader{r: r, audit: newAudit()}
	m, err := in.header()
	if err != nil {
		return SnapshotInfo{}, m, err
	}
	in.info.Applied, in.info.Zxid, in.info.Digest = m.applied, m.zxid, m.digest
	for {
		payload, err := in.nextChunk()
		if err != nil {
			return SnapshotInfo{}, m, err
		}
		if payload == nil {
			break
		}
		if err := in.records(payload, each); err != nil {
			return SnapshotInfo{}, m, err
		}
	}
	if err := in.trailer(&m); err != nil {
		return SnapshotInfo{}, m, err
	}
	return in.info, m, nil
}

type snapshotReader struct {
	r      io.Reader
	info   SnapshotInfo
	audit  *audit
	chunk  []byte
	chunks uint64
	last   []byte // key before this one
}

// refuse is the error of an unsound stream.
func (s *snapshotReader) refuse(format string, args ...any) error {
	return fmt.Errorf("%w: before byte %d: %s", ErrSnapshot, s.info.Bytes, fmt.Sprintf(format, args...))
}

// read fills b; an end before that is a truncated snapshot.
func (s *snapshotReader) read(b []byte, what string) error {
	n, err := io.ReadFull(s.r, b)
	s.info.Bytes += int64(n)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return s.refuse("it ends within %s: truncated", what)
	}
	if err != nil {
		return fmt.Errorf("store: read snapshot at byte %d: %w", s.info.Bytes, err)
	}
	return nil
}

func (s *snapshotReader) header() (meta, error) {
	b := make([]byte, len(snapshotMagic)+8)
	if err := s.read(b, "the header"); err != nil {
		return meta{}, err
	}
	if string(b[:len(snapshotMagic)]) != snapshotMagic {
		return meta{}, s.refuse("it begins with %q, not %q", b[:len(snapshotMagic)], snapshotMagic)
	}
	format, n := binary.LittleEndian.Uint32(b[8:]), binary.LittleEndian.Uint32(b[12:])
	if format != snapshotFormat {
		return meta{}, s.refuse("format %d, this program knows %d", format, snapshotFormat)
	}
	if n > metaBytesMax {
		return meta{}, s.refuse("meta of %d bytes, at most %d", n, metaBytesMax)
	}
	b = append(b, make([]byte, n+4)...)
	if err := s.read(b[16:], "the header"); err != nil {
		return meta{}, err
	}
	body, sum := b[:len(b)-4], binary.LittleEndian.Uint32(b[len(b)-4:])
	if crc32.Checksum(body, castagnoli) != sum {
		return meta{}, s.refuse("the header's checksum is wrong")
	}
	m, err := decodeMeta(body[16:])
	if err != nil {
		return meta{}, s.refuse("%v", err)
	}
	return m, nil
}

// nextChunk returns the next chunk's records, nil at the trailer.
func (s *snapshotReader) nextChunk() ([]byte, error) {
	var head [chunkHeaderBytes]byte
	if err := s.read(head[:4], "a chunk's length"); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(head[:4])
	if n == 0 {
		return nil, nil
	}
	if n > chunkBytesMax {
		return nil, s.refuse("chunk %d of %d bytes, at most %d", s.chunks, n, chunkBytesMax)
	}
	if err := s.read(head[4:], "a chunk's checksum"); err != nil {
		return nil, err
	}
	// Memory grows with what has come, not with what the length claims.
	for s.chunk = s.chunk[:0]; uint32(len(s.chunk)) < n; {
		at := len(s.chunk)
		s.chunk = slices.Grow(s.chunk, int(min(n-uint32(at), 2*chunkBytes)))
		s.chunk = s.chunk[:min(int(n), cap(s.chunk))]
		if err := s.read(s.chunk[at:], fmt.Sprintf("chunk %d", s.chunks)); err != nil {
			return nil, err
		}
	}
	if chunkCRC(s.chunks, s.chunk) != binary.LittleEndian.Uint32(head[4:]) {
		return nil, s.refuse("the checksum of chunk %d is wrong", s.chunks)
	}
	s.chunks++
	return s.chunk, nil
}

func (s *snapshotReader) records(payload []byte, each func(key, value []byte) error) error {
	for len(payload) > 0 {
		key, rest, ok := cutBytes(payload)
		value, rest, ok2 := cutBytes(rest)
		if !ok || !ok2 || len(key) == 0 {
			return s.refuse("record %d is cut short", s.info.Records)
		}
		if bytes.Compare(key, s.last) <= 0 {
			return s.refuse("record %s is not after %s", formatKey(key), formatKey(s.last))
		}
		s.last = append(s.last[:0], key...)
		if err := s.audit.add(key, value); err != nil {
			return s.refuse("%v", err)
		}
		if err := each(key, value); err != nil {
			return err
		}
		s.info.Records++
		payload = rest
	}
	return nil
}

// cutBytes takes bytes with their length in front off b.
func cutBytes(b []byte) (field, rest []byte, ok bool) {
	n, size := binary.Uvarint(b)
	if size <= 0 || n > uint64(len(b)-size) {
		return nil, nil, false
	}
	return b[size : size+int(n)], b[size+int(n):], true
}

func (s *snapshotReader) trailer(m *meta) error {
	b := make([]byte, 4+trailerBytes) // the 0 is read already
	if err := s.read(b[4:], "the trailer"); err != nil {
		return err
	}
	body, sum := b[:len(b)-4], binary.LittleEndian.Uint32(b[len(b)-4:])
	if crc32.Checksum(body, castagnoli) != sum {
		return s.refuse("the trailer's checksum is wrong")
	}
	records, chunks := binary.LittleEndian.Uint64(body[4:]), binary.LittleEndian.Uint64(body[12:])
	if records != uint64(s.info.Records) || chunks != s.chunks {
		return s.refuse("it has %d records in %d chunks, the trailer says %d in %d", s.info.Records, s.chunks, records, chunks)
	}
	if digest := binary.LittleEndian.Uint64(body[20:]); digest != m.digest {
		return s.refuse("the trailer's digest is %#x, the header's %#x", digest, m.digest)
	}
	if err := s.audit.end(); err != nil {
		return s.refuse("%v", err)
	}
	if wrong := s.audit.disagreements(m); wrong != nil {
		return s.refuse("%s", strings.Join(wrong, "; "))
	}
	if n, _ := io.ReadFull(s.r, make([]byte, 1)); n > 0 {
		return s.refuse("there is more behind the trailer")
	}
	return nil
}
