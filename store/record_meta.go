package store

import (
	"encoding/binary"
	"fmt"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// meta is the one record that says where the state stands. It is written with every
// batch, in the same Pebble batch, and so tells which entries' effects are there.
type meta struct {
	applied  uint64
	zxid     int64
	timeMs   int64 // largest stamp
	digest   uint64
	counts   Counts
	open     segment // of the history: changes after the last closed segment
	openedMs int64   // stamp of the first changes in open
}

func appendMeta(dst []byte, m *meta) []byte {
	dst = append(dst, recordVersion)
	dst = binary.AppendUvarint(dst, formatVersion)
	dst = binary.AppendUvarint(dst, m.applied)
	dst = binary.AppendVarint(dst, m.zxid)
	dst = binary.AppendVarint(dst, m.timeMs)
	dst = binary.LittleEndian.AppendUint64(dst, m.digest)
	c := &m.counts
	for _, v := range [...]int64{c.Znodes, c.Ephemerals, c.Sessions, c.DataBytes, c.Results,
		c.HistoryFirst, c.HistoryCount, c.HistoryBytes} {
		dst = binary.AppendVarint(dst, v)
	}
	dst = appendSegmentFields(dst, &m.open)
	return binary.AppendVarint(dst, m.openedMs)
}

func decodeMeta(value []byte) (meta, error) {
	var m meta
	d := newDecoder(metaKey, value)
	if v := d.uvarint("format version"); d.err == nil && v != formatVersion {
		return m, fmt.Errorf("store: the data directory has format %d, this program knows %d", v, formatVersion)
	}
	m.applied = uint64(d.uvarint("applied index"))
	m.zxid, m.timeMs, m.digest = d.varint("zxid"), d.varint("time"), d.uint64("digest")
	c := &m.counts
	for _, p := range [...]*int64{&c.Znodes, &c.Ephemerals, &c.Sessions, &c.DataBytes, &c.Results,
		&c.HistoryFirst, &c.HistoryCount, &c.HistoryBytes} {
		*p = d.varint("counts")
	}
	d.segmentFields(&m.open)
	m.openedMs = d.varint("time of the open segment")
	return m, d.end()
}

// segment is a stretch of the history that is trimmed as a whole.
type segment struct {
	last   int64 // zxid of its last change
	count  int64 // changes
	bytes  int64 // of keys and values
	lastMs int64 // stamp of its last change
}

func appendSegmentFields(dst []byte, s *segment) []byte {
	for _, v := range [...]int64{s.last, s.count, s.bytes, s.lastMs} {
		dst = binary.AppendVarint(dst, v)
	}
	return dst
}

func (d *decoder) segmentFields(s *segment) {
	for _, p := range [...]*int64{&s.last, &s.count, &s.bytes, &s.lastMs} {
		*p = d.varint("segment")
	}
}

func appendSegment(dst []byte, s *segment) []byte {
	return appendSegmentFields(append(dst, recordVersion), s)
}

func decodeSegment(key, value []byte) (segment, error) {
	var s segment
	d := newDecoder(key, value)
	d.segmentFields(&s)
	if id, rest, ok := idOfKey(key); !ok || len(rest) != 0 || id != s.last {
		d.fail("the key is not the segment's last zxid")
	}
	return s, d.end()
}

// appendHistoryEntry appends one transaction's changes to a history record, which is
// a version byte and such entries.
func appendHistoryEntry(dst []byte, zxid int64, changes []znode.Change) []byte {
	dst = binary.AppendVarint(dst, zxid)
	// The length is not known yet: room for its longest form in 5 bytes.
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = wire.AppendChanges(dst, changes)
	binary.LittleEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	return dst
}

// decodeHistory calls yield with the entries of one history record in order.
func decodeHistory(key, value []byte, yield func(HistoryEntry) bool) error {
	d := newDecoder(key, value)
	var last int64
	for d.err == nil && d.off < len(d.b) {
		e := HistoryEntry{Zxid: d.varint("zxid")}
		n := int64(binary.LittleEndian.Uint32(d.take(4, "length of the changes", zero8[:])))
		at := d.off
		b := d.take(n, "changes", nil)
		if d.err != nil {
			break
		}
		changes, err := wire.DecodeChanges(b)
		if err != nil || e.Zxid <= last {
			d.off = at
			d.fail(fmt.Sprintf("changes of zxid %#x: %v", e.Zxid, err))
			break
		}
		e.Changes, last = changes, e.Zxid
		if !yield(e) {
			return nil
		}
	}
	if id, rest, ok := idOfKey(key); !ok || len(rest) != 0 || last != 0 && id != last {
		d.fail("the key is not the last zxid")
	}
	return d.err
}

// appendWindow appends the record of a session's window.
func appendWindow(dst []byte, last, acked int64) []byte {
	dst = append(dst, recordVersion)
	dst = binary.AppendUvarint(dst, uint64(last))
	return binary.AppendUvarint(dst, uint64(acked))
}

func decodeWindow(key, value []byte) (last, acked int64, err error) {
	d := newDecoder(key, value)
	last, acked = d.uvarint("last seq"), d.uvarint("acknowledged seq")
	if acked > last {
		d.fail(fmt.Sprintf("seq %d is acknowledged, the last is %d", acked, last))
	}
	return last, acked, d.end()
}

// Result records are a version byte and, for consecutive seqs, length and bytes of a
// result.

func appendResult(dst, result []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(result))), result...)
}

// eachResult calls yield with the bytes of the results of one record in order.
func eachResult(key, value []byte, yield func(result []byte)) error {
	d := newDecoder(key, value)
	for d.err == nil && d.off < len(d.b) {
		n := d.uvarint("length of a result")
		if n == 0 {
			d.fail("a result has no bytes")
		}
		if b := d.take(n, "result", nil); d.err == nil {
			yield(b)
		}
	}
	return d.err
}
