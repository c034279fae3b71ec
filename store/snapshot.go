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
// history. Integers are little-endian. A stream that continues one has the same header
// and trailer, and only the chunks that were missing.
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
	// chunkBytesMax bounds what a reader allocates. A chunk is longer than chunkBytes
	// only by one record, and that is little more than the largest message, 64 MiB.
	chunkBytesMax = 80 << 20
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
	in := snapshotReader{audit: newAudit()}
	if err := in.run(r, each); err != nil {
		return SnapshotInfo{}, in.meta, err
	}
	return in.info, in.meta, nil
}

// snapshotReader reads a snapshot. What it has read up to the end of a chunk stays valid
// when the stream breaks: it can go on with one that continues there.
type snapshotReader struct {
	r      io.Reader
	meta   meta // the header's
	begun  []byte
	info   SnapshotInfo
	audit  *audit
	chunk  []byte
	chunks uint64
	last   []byte // key before this one
	// spoiled: a whole chunk was taken that turned out to be wrong.
	spoiled bool
}

// run reads r to its end. r begins with a header, and if this is not the first call,
// goes on behind the chunks that were read.
func (s *snapshotReader) run(r io.Reader, each func(key, value []byte) error) error {
	s.r = r
	if err := s.header(); err != nil {
		return err
	}
	for {
		payload, err := s.nextChunk()
		if err != nil {
			return err
		}
		s.spoiled = true // unless all of it is right
		if payload == nil {
			break
		}
		if err := s.records(payload, each); err != nil {
			return err
		}
		s.chunks++
		s.spoiled = false
	}
	err := s.trailer(&s.meta)
	s.spoiled = err != nil
	return err
}

// position is where a stream has to go on.
func (s *snapshotReader) position() []byte {
	if s.chunks == 0 {
		return nil
	}
	return appendPosition(nil, s.chunks, s.info.Records, s.last)
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

// header reads the header, which must be the same in all streams of one snapshot.
func (s *snapshotReader) header() error {
	b := make([]byte, len(snapshotMagic)+8)
	if err := s.read(b, "the header"); err != nil {
		return err
	}
	if string(b[:len(snapshotMagic)]) != snapshotMagic {
		return s.refuse("it begins with %q, not %q", b[:len(snapshotMagic)], snapshotMagic)
	}
	format, n := binary.LittleEndian.Uint32(b[8:]), binary.LittleEndian.Uint32(b[12:])
	if format != snapshotFormat {
		return s.refuse("format %d, this program knows %d", format, snapshotFormat)
	}
	if n > metaBytesMax {
		return s.refuse("meta of %d bytes, at most %d", n, metaBytesMax)
	}
	b = append(b, make([]byte, n+4)...)
	if err := s.read(b[16:], "the header"); err != nil {
		return err
	}
	body, sum := b[:len(b)-4], binary.LittleEndian.Uint32(b[len(b)-4:])
	if crc32.Checksum(body, castagnoli) != sum {
		return s.refuse("the header's checksum is wrong")
	}
	if s.begun != nil && !bytes.Equal(s.begun, b) {
		return s.refuse("it does not continue the snapshot that was begun")
	}
	m, err := decodeMeta(body[16:])
	if err != nil {
		return s.refuse("%v", err)
	}
	s.begun, s.meta = b, m
	s.info.Applied, s.info.Zxid, s.info.Digest = m.applied, m.zxid, m.digest
	return nil
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
