package replica

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/bits"

	"go.etcd.io/raft/v3/raftpb"
)

// Keys of the log's database. Every value starts with the CRC32C of its key and the
// rest of the value, so a record that was moved under another key is found too.
//
//	e <index, 8 bytes big endian>  entry: term, type, data
//	h                              head: see head
//	c                              configuration: see encodeConf
//	i                              identity: format, member id, cluster id, instance
//	p <member, 8 bytes big endian> peer: its instance
//	t                              truncation: index and term of the last entry dropped
const (
	entryPrefix = 'e'
	entryEnd    = 'f'
	peerPrefix  = 'p'
)

var (
	headKey     = []byte{'h'}
	confKey     = []byte{'c'}
	identityKey = []byte{'i'}
	truncKey    = []byte{'t'}
)

// identityFormat is the version of the identity's record.
const identityFormat = 2

const checksumLen = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(key, body []byte) uint32 {
	return crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, body)
}

// seal fills in the checksum of a record that was built behind checksumLen zero bytes.
func seal(key, record []byte) []byte {
	binary.LittleEndian.PutUint32(record, checksum(key, record[checksumLen:]))
	return record
}

// open verifies the checksum of a record and returns its body.
func open(key, record []byte) ([]byte, error) {
	if len(record) < checksumLen {
		return nil, fmt.Errorf("%w: record %q has %d bytes, fewer than its checksum", ErrCorrupt, key, len(record))
	}
	body := record[checksumLen:]
	want := binary.LittleEndian.Uint32(record)
	if got := checksum(key, body); got != want {
		return nil, fmt.Errorf("%w: record %q has checksum %08x, its content has %08x", ErrCorrupt, key, want, got)
	}
	return body, nil
}

func appendEntryKey(dst []byte, index uint64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, entryPrefix), index)
}

func entryKeyIndex(key []byte) (uint64, error) {
	if len(key) != 9 || key[0] != entryPrefix {
		return 0, fmt.Errorf("%w: %q is not an entry's key", ErrCorrupt, key)
	}
	return binary.BigEndian.Uint64(key[1:]), nil
}

// entryRecordLen returns the size of e's record.
func entryRecordLen(e *raftpb.Entry) int {
	return checksumLen + (bits.Len64(e.GetTerm()|1)+6)/7 + 1 + len(e.Data)
}

// putEntry writes e's record into dst, which has the length that entryRecordLen gives.
func putEntry(dst, key []byte, e *raftpb.Entry) {
	n := checksumLen + binary.PutUvarint(dst[checksumLen:], e.GetTerm())
	dst[n] = byte(e.GetType())
	copy(dst[n+1:], e.Data)
	seal(key, dst)
}

// decodeEntry verifies and decodes the record under key. The entry does not alias
// record.
func decodeEntry(key, record []byte) (*raftpb.Entry, error) {
	index, err := entryKeyIndex(key)
	if err != nil {
		return nil, err
	}
	body, err := open(key, record)
	if err != nil {
		return nil, fmt.Errorf("entry %d: %w", index, err)
	}
	term, n := binary.Uvarint(body)
	if n <= 0 || n == len(body) || term == 0 {
		return nil, fmt.Errorf("%w: entry %d has no term or no type", ErrCorrupt, index)
	}
	typ := raftpb.EntryType(body[n])
	if _, ok := raftpb.EntryType_name[int32(typ)]; !ok {
		return nil, fmt.Errorf("%w: entry %d has the unknown type %d", ErrCorrupt, index, typ)
	}
	e := &raftpb.Entry{Index: &index, Term: &term, Type: &typ}
	if data := body[n+1:]; len(data) > 0 {
		e.Data = append([]byte(nil), data...)
	}
	return e, nil
}

// head is the record that starts every batch: Raft's hard state and what the writer
// knew at that time. A batch that survives proves that the batches up to Synced had
// been on disk, however damaged the place where they should be is now.
type head struct {
	Term, Vote, Commit uint64
	Last               uint64 // index of the last entry after this batch
	Seq                uint64 // number of this batch, counted from 1
	Synced             uint64 // number of the last batch known to be on disk before this one
}

func appendHead(dst []byte, h head) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	for _, v := range [...]uint64{h.Term, h.Vote, h.Commit, h.Last, h.Seq, h.Synced} {
		dst = binary.AppendUvarint(dst, v)
	}
	seal(headKey, dst[start:])
	return dst
}

func decodeHead(record []byte) (head, error) {
	var h head
	body, err := open(headKey, record)
	if err != nil {
		return h, fmt.Errorf("hard state: %w", err)
	}
	err = decodeUvarints(body, &h.Term, &h.Vote, &h.Commit, &h.Last, &h.Seq, &h.Synced)
	return h, err
}

// decodeUvarints reads exactly len(to) numbers from body.
func decodeUvarints(body []byte, to ...*uint64) error {
	for _, v := range to {
		x, n := binary.Uvarint(body)
		if n <= 0 {
			return fmt.Errorf("%w: a record ends early", ErrCorrupt)
		}
		*v, body = x, body[n:]
	}
	if len(body) != 0 {
		return fmt.Errorf("%w: a record has %d bytes too many", ErrCorrupt, len(body))
	}
	return nil
}

// encodeUvarints is the inverse of decodeUvarints, as a whole record.
func encodeUvarints(key []byte, numbers ...uint64) []byte {
	rec := make([]byte, checksumLen, checksumLen+len(numbers)*binary.MaxVarintLen64)
	for _, v := range numbers {
		rec = binary.AppendUvarint(rec, v)
	}
	return seal(key, rec)
}

// pair is the body of the truncation (index, term).
func encodePair(key []byte, a, b uint64) []byte { return encodeUvarints(key, a, b) }

func decodePair(key, record []byte) (a, b uint64, err error) {
	body, err := open(key, record)
	if err != nil {
		return 0, 0, err
	}
	err = decodeUvarints(body, &a, &b)
	return a, b, err
}
