package replica

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/wal"
)

// Pebble takes the first damaged record of its newest write-ahead log for the torn end
// of the last write, unless a later 32 KiB block says that the place had been synced.
// So a flipped bit in synced data is taken for the end if what follows is in the same
// block, or if the flip turns the log number into that of an end marker; and a torn
// log that is not the newest any more, after two crashes in a row, keeps Pebble from
// opening at all. Therefore this file reads the logs before Pebble does: whatever
// stands behind the damage and proves that the damaged place was synced makes Open
// fail with ErrCorrupt; if nothing proves that, the torn end is cut off for good, so
// that nothing is ever written behind it.
//
// What remains undetected is damage to the last synced batch with nothing behind it.
// The member writes one more synced batch within two ticks of the last one, so that is
// possible only that long before a power cut, or a kill; and the applied index of the
// state machine is one more proof. The same holds for a log that was cut at the end of a
// batch, or emptied: it looks as it did before the rest was written.

const (
	walBlock        = 32 << 10
	walLegacyLen    = 7  // the smallest chunk header
	walHeaderLen    = 11 // checksum 4, length 2, kind 1, log number 4
	walSyncLen      = 19 // and the synced offset, 8
	walFull         = 5  // kinds: full, first, middle, last piece of a record
	walFirst        = 6
	walLast         = 8
	walSyncKinds    = 4  // to be added for chunks with a synced offset
	batchHeaderLen  = 12 // of Pebble's batch: sequence number 8, count 4
	batchKindSet    = 1
	repairExtension = ".repair"
)

// chunk is one verified piece of a record. Pebble writes the first log of a new
// database without synced offsets.
type chunk struct {
	kind    byte   // without walSyncKinds
	synced  uint64 // offset in the file up to which it had been synced, 0 if unknown
	payload []byte
	end     int
}

// starts reports whether a record begins with c.
func (c chunk) starts() bool { return c.kind == walFull || c.kind == walFirst }

// ends reports whether a record ends with c.
func (c chunk) ends() bool { return c.kind == walFull || c.kind == walLast }

// walChunk reads the chunk at pos, or reports false if there is no valid one.
func walChunk(data []byte, pos int, logNum uint32) (chunk, bool) {
	left := min(len(data), pos-pos%walBlock+walBlock) - pos
	if left < walHeaderLen {
		return chunk{}, false
	}
	h := data[pos:]
	kind, header := h[6], walHeaderLen
	if kind > walLast {
		kind, header = kind-walSyncKinds, walSyncLen
	}
	end := header + int(binary.LittleEndian.Uint16(h[4:]))
	if kind < walFull || kind > walLast || end > left || binary.LittleEndian.Uint32(h[7:]) != logNum {
		return chunk{}, false
	}
	sum := checksum(nil, h[6:end])
	if binary.LittleEndian.Uint32(h) != (sum>>15|sum<<17)+0xa282ead8 {
		return chunk{}, false
	}
	c := chunk{kind: kind, payload: h[header:end], end: pos + end}
	if header == walSyncLen {
		c.synced = binary.LittleEndian.Uint64(h[walHeaderLen:])
	}
	return c, true
}

// isTrailer reports whether the end marker of log logNum is at pos.
func isTrailer(data []byte, pos int, logNum uint32) bool {
	var want [walHeaderLen]byte
	want[6] = walFull
	binary.LittleEndian.PutUint32(want[7:], logNum+1)
	return bytes.HasPrefix(data[pos:], want[:])
}

// skipPadding returns the start of the next block if what is left of this one is too
// short for a chunk, else pos.
func skipPadding(data []byte, pos int) int {
	left := walBlock - pos%walBlock
	if left >= walSyncLen || len(data)-pos < left {
		return pos
	}
	if left < walLegacyLen || bytes.Count(data[pos:pos+left], []byte{0}) == left {
		return pos + left
	}
	return pos
}

// walScan is what reading a log led to.
type walScan struct {
	end   int    // the end of the last complete record
	seq   uint64 // the number of the last complete batch, 0 if there is none
	clean bool   // the log ends at end or with an end marker
}

// scanWAL reads the log in data. seq is the number of the last batch in the logs
// before it. The error is ErrCorrupt if something behind the first damage proves that
// the damaged place had been synced.
func scanWAL(data []byte, logNum uint32, seq uint64) (walScan, error) {
	s := walScan{seq: seq}
	var first []byte // payload of the record's first chunk
	pos := 0
	for {
		pos = skipPadding(data, pos)
		if pos == len(data) && first == nil {
			s.end, s.clean = pos, true
			return s, nil
		}
		c, ok := walChunk(data, pos, logNum)
		if !ok || c.starts() == (first != nil) {
			break
		}
		if c.starts() {
			first = c.payload
		}
		pos = c.end
		if c.ends() {
			if h, ok := batchHead(first); ok {
				s.seq = h.Seq
			}
			s.end, first = pos, nil
		}
	}
	if first == nil && isTrailer(data, pos, logNum) {
		s.clean = true
		return s, nil
	}
	return s, proveSynced(data, logNum, pos, s.seq)
}

// batchHead decodes the head that starts the batch whose first bytes are in payload.
func batchHead(payload []byte) (head, bool) {
	if len(payload) < batchHeaderLen {
		return head{}, false
	}
	b := payload[batchHeaderLen:]
	prefix := []byte{batchKindSet, byte(len(headKey)), headKey[0]}
	if !bytes.HasPrefix(b, prefix) {
		return head{}, false
	}
	b = b[len(prefix):]
	n, w := binary.Uvarint(b)
	if w <= 0 || n > uint64(len(b)-w) {
		return head{}, false
	}
	h, err := decodeHead(b[w : w+int(n)])
	return h, err == nil
}

// proveSynced looks at every byte behind the damage at pos for a chunk that proves
// that pos had been synced: its synced offset lies behind pos, or the head in it says
// that the batch directly before it, or one younger than seq, was on disk.
func proveSynced(data []byte, logNum uint32, pos int, seq uint64) error {
	for p := pos + 1; p+walHeaderLen <= len(data); p++ {
		if k := data[p+6]; k < walFull || k > walLast+walSyncKinds {
			continue // spares most of the checksums
		}
		c, ok := walChunk(data, p, logNum)
		if !ok {
			continue
		}
		if c.synced > uint64(pos) {
			return fmt.Errorf("%w: the record at offset %d is damaged, but offset %d says that the log was synced up to %d",
				ErrCorrupt, pos, p, c.synced)
		}
		h, ok := batchHead(c.payload)
		if c.starts() && ok && (h.Synced+1 >= h.Seq || seq > 0 && h.Synced > seq) {
			return fmt.Errorf("%w: the record at offset %d is damaged, but batch %d at offset %d was written after batch %d had been synced",
				ErrCorrupt, pos, h.Seq, p, h.Synced)
		}
	}
	return nil
}

// checkWALs reads all write-ahead logs in dir, in order, and with repair cuts the torn end
// off the newest. used reports whether there is data of a member in dir.
func checkWALs(fs vfs.FS, dir string, repair bool) (used bool, err error) {
	names, err := fs.List(dir)
	if err != nil {
		return false, fmt.Errorf("replica: listing %s: %w", dir, err)
	}
	type file struct {
		num  wal.NumWAL
		name string
	}
	var files []file
	for _, name := range names {
		used = used || strings.HasSuffix(name, ".sst")
		if strings.HasSuffix(name, repairExtension) {
			if !repair {
				continue
			}
			if err := fs.Remove(fs.PathJoin(dir, name)); err != nil {
				return false, fmt.Errorf("replica: removing an unfinished repair: %w", err)
			}
		} else if num, _, ok := wal.ParseLogFilename(name); ok {
			files = append(files, file{num, name})
		}
	}
	slices.SortFunc(files, func(a, b file) int { return int(int64(a.num) - int64(b.num)) })
	seq := uint64(0)
	for i, f := range files {
		path := fs.PathJoin(dir, f.name)
		data, err := readFile(fs, path)
		if err != nil {
			return false, fmt.Errorf("replica: reading %s: %w", path, err)
		}
		s, err := scanWAL(data, uint32(f.num), seq)
		if err != nil {
			return false, fmt.Errorf("%s: %w", path, err)
		}
		seq = s.seq
		if i == len(files)-1 && !s.clean && repair {
			if err := replaceFile(fs, dir, f.name, data[:s.end]); err != nil {
				return false, fmt.Errorf("replica: cutting the torn end off %s at %d: %w", path, s.end, err)
			}
		}
	}
	return used || seq > 0, nil
}

func readFile(fs vfs.FS, path string) ([]byte, error) {
	f, err := fs.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	data := make([]byte, info.Size())
	n, err := io.ReadFull(f, data)
	if data = data[:n]; err == io.EOF || err == io.ErrUnexpectedEOF {
		err = nil // it is as long as could be read
	}
	if errClose := f.Close(); err == nil {
		err = errClose
	}
	return data, err
}

// replaceFile gives the file name in dir the content data: either the old or the new
// content survives a crash.
func replaceFile(fs vfs.FS, dir, name string, data []byte) error {
	path := fs.PathJoin(dir, name)
	f, err := fs.Create(path+repairExtension, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if errClose := f.Close(); err == nil {
		err = errClose
	}
	if err == nil {
		err = fs.Rename(path+repairExtension, path)
	}
	if err != nil {
		return err
	}
	return syncDir(fs, dir)
}

// syncDir makes the entries of dir durable.
func syncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if errClose := d.Close(); err == nil {
		err = errClose
	}
	return err
}
