package store

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// Every record begins with the version of its form. Encodings are canonical: one
// value has one encoding, so a record can be hashed from its decoded value.
const recordVersion = 1

// formatVersion is the version of the key schema as a whole; it is in meta.
const formatVersion = 1

// CorruptError says that a record is not what this program wrote. It is a value and
// may be shared.
type CorruptError struct {
	Key    string // the record's key, readable: table, then path or numbers
	Offset int    // in the value, where decoding stopped
	What   string // what was expected there
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("store: record %s is corrupt at byte %d: %s", e.Key, e.Offset, e.What)
}

// formatKey makes a key readable for errors.
func formatKey(key []byte) string {
	if len(key) == 0 {
		return "(empty)"
	}
	table := string(key[:1])
	switch key[0] {
	case tableNode, tableData, tableChildren:
		if path, ok := pathOfKey(key); ok {
			return table + " " + path
		}
	case tableEphemeral, tableReap:
		if id, rest, ok := idOfKey(key); ok {
			return fmt.Sprintf("%s %#x %s", table, id, rest)
		}
	case tableHistory, tableSegment, tableSession:
		if id, rest, ok := idOfKey(key); ok && len(rest) == 0 {
			return fmt.Sprintf("%s %#x", table, id)
		}
	case tableResult:
		if id, rest, ok := idOfKey(key); ok && len(rest) == 8 {
			return fmt.Sprintf("%s %#x %d", table, id, binary.BigEndian.Uint64(rest))
		}
	case tableMeta:
		if len(key) == 1 {
			return "meta"
		}
	}
	return fmt.Sprintf("%q", key)
}

// decoder reads one value and keeps the first error.
type decoder struct {
	key, b []byte
	off    int
	err    error
}

// newDecoder begins to decode value, whose record version it checks.
func newDecoder(key, value []byte) *decoder {
	d := &decoder{key: key, b: value}
	if v := d.byte("record version"); d.err == nil && v != recordVersion {
		d.off--
		d.fail(fmt.Sprintf("record version %d, this program knows %d", v, recordVersion))
	}
	return d
}

func (d *decoder) fail(what string) {
	if d.err == nil {
		d.err = &CorruptError{Key: formatKey(d.key), Offset: d.off, What: what}
	}
}

func (d *decoder) byte(what string) byte {
	if d.err != nil || d.off >= len(d.b) {
		d.fail(what + " is missing")
		return 0
	}
	d.off++
	return d.b[d.off-1]
}

func (d *decoder) uvarint(what string) int64 {
	if d.err != nil {
		return 0
	}
	v, n := binary.Uvarint(d.b[d.off:])
	if n <= 0 || n > 1 && d.b[d.off+n-1] == 0 || v > math.MaxInt64 {
		d.fail(what + " is no number")
		return 0
	}
	d.off += n
	return int64(v)
}

func (d *decoder) varint(what string) int64 {
	if d.err != nil {
		return 0
	}
	v, n := binary.Varint(d.b[d.off:])
	if n <= 0 || n > 1 && d.b[d.off+n-1] == 0 {
		d.fail(what + " is no number")
		return 0
	}
	d.off += n
	return v
}

func (d *decoder) varint32(what string) int32 {
	v := d.varint(what)
	if v != int64(int32(v)) {
		d.fail(fmt.Sprintf("%s %d has more than 32 bits", what, v))
	}
	return int32(v)
}

func (d *decoder) uint64(what string) uint64 {
	return binary.LittleEndian.Uint64(d.take(8, what, zero8[:]))
}

var zero8 [8]byte

// take returns the next n bytes, which alias the value, or instead after an error.
func (d *decoder) take(n int64, what string, instead []byte) []byte {
	if d.err != nil || n > int64(len(d.b)-d.off) {
		d.fail(fmt.Sprintf("%s of %d bytes is cut short", what, n))
		return instead
	}
	d.off += int(n)
	return d.b[d.off-int(n) : d.off]
}

func (d *decoder) string(what string) string {
	n := d.uvarint("length of " + what)
	return string(d.take(n, what, nil))
}

// end checks that nothing is left.
func (d *decoder) end() error {
	if d.err == nil && d.off != len(d.b) {
		d.fail(fmt.Sprintf("%d bytes too many", len(d.b)-d.off))
	}
	return d.err
}

// Flags of a node record.
const (
	nodeKindMask  = 0x03
	nodeHasData   = 0x04 // not null
	nodeDataApart = 0x08 // the data is in table d
	nodeOpenACL   = 0x10 // the list is znode.OpenACL and not stored
	nodeFlags     = 0x1f
)

// appendNode appends the record of n. Data of more than InlineDataMax bytes is not
// in it.
func appendNode(dst []byte, n *znode.Node) []byte {
	flags := byte(n.Kind) & nodeKindMask
	if n.Data != nil {
		flags |= nodeHasData
	}
	apart := len(n.Data) > InlineDataMax
	if apart {
		flags |= nodeDataApart
	}
	open := isOpenACL(n.ACL)
	if open {
		flags |= nodeOpenACL
	}
	dst = append(dst, recordVersion, flags)
	dst = binary.AppendUvarint(dst, uint64(len(n.Data)))
	dst = binary.AppendVarint(dst, n.Czxid)
	dst = binary.AppendVarint(dst, n.Mzxid)
	dst = binary.AppendVarint(dst, n.Ctime)
	dst = binary.AppendVarint(dst, n.Mtime-n.Ctime)
	dst = binary.AppendVarint(dst, int64(n.Version))
	dst = binary.AppendVarint(dst, int64(n.Aversion))
	switch n.Kind {
	case znode.Ephemeral:
		dst = binary.AppendVarint(dst, int64(n.Owner))
	case znode.TTL:
		dst = binary.AppendUvarint(dst, uint64(n.TTLMs))
	}
	if !open {
		dst = appendACL(dst, n.ACL)
	}
	if !apart {
		dst = append(dst, n.Data...)
	}
	return dst
}

// nodeHeader is a node record without its inline data.
type nodeHeader struct {
	node    znode.Node // Data is nil
	dataLen int64
	hasData bool
	apart   bool
}

// decodeNodeHeader decodes all but the data, and returns the inline data, which
// aliases value.
func decodeNodeHeader(key, value []byte) (h nodeHeader, inline []byte, err error) {
	d := newDecoder(key, value)
	flags := d.byte("flags")
	h.hasData, h.apart = flags&nodeHasData != 0, flags&nodeDataApart != 0
	h.dataLen = d.uvarint("length of the data")
	if flags&^nodeFlags != 0 || h.apart != (h.dataLen > InlineDataMax) || !h.hasData && h.dataLen > 0 {
		d.fail(fmt.Sprintf("flags %#x do not fit %d bytes of data", flags, h.dataLen))
	}
	n := &h.node
	n.Kind = znode.Kind(flags & nodeKindMask)
	n.Czxid, n.Mzxid = d.varint("czxid"), d.varint("mzxid")
	n.Ctime = d.varint("ctime")
	n.Mtime = n.Ctime + d.varint("mtime")
	n.Version, n.Aversion = d.varint32("version"), d.varint32("aversion")
	switch n.Kind {
	case znode.Ephemeral:
		n.Owner = session.ID(d.varint("owner"))
	case znode.TTL:
		n.TTLMs = d.uvarint("lifetime")
	}
	n.ACL = znode.OpenACL
	if flags&nodeOpenACL == 0 {
		if n.ACL = d.acl(); isOpenACL(n.ACL) {
			d.fail("the open ACL is not stored as such")
		}
	}
	if !h.apart {
		inline = d.take(h.dataLen, "data", nil)
	}
	return h, inline, d.end()
}

// isOpenACL reports whether acl equals znode.OpenACL, which nearly all do.
func isOpenACL(acl []znode.ACL) bool {
	return len(acl) == 1 && acl[0] == znode.OpenACL[0]
}

func appendACL(dst []byte, acl []znode.ACL) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(acl)))
	for i := range acl {
		dst = binary.AppendVarint(dst, int64(acl[i].Perms))
		dst = appendString(dst, acl[i].Scheme)
		dst = appendString(dst, acl[i].ID)
	}
	return dst
}

func appendString(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

func (d *decoder) acl() []znode.ACL {
	n := d.uvarint("length of the ACL")
	if n > int64(len(d.b)-d.off) { // an entry has 3 bytes at least
		d.fail(fmt.Sprintf("ACL of %d entries is cut short", n))
	}
	if d.err != nil || n == 0 {
		return nil
	}
	acl := make([]znode.ACL, n)
	for i := range acl {
		acl[i].Perms = d.varint32("permissions")
		acl[i].Scheme, acl[i].ID = d.string("scheme"), d.string("id")
	}
	return acl
}

// Data records are a version byte and the data as it is.

func decodeData(key, value []byte) ([]byte, error) {
	d := newDecoder(key, value)
	return d.take(int64(len(d.b)-d.off), "data", nil), d.err
}

func appendChildren(dst []byte, c znode.Children) []byte {
	dst = append(dst, recordVersion)
	dst = binary.AppendUvarint(dst, uint64(c.Created))
	dst = binary.AppendUvarint(dst, uint64(c.Live))
	return binary.AppendVarint(dst, c.Pzxid)
}

func decodeChildren(key, value []byte) (znode.Children, error) {
	d := newDecoder(key, value)
	c := znode.Children{Created: d.uvarint("created"), Live: d.uvarint("live"), Pzxid: d.varint("pzxid")}
	return c, d.end()
}

// Session records are wire.AppendSession's; their key repeats the id.

func decodeSession(key, value []byte) (*session.Session, error) {
	s, err := wire.DecodeSession(value)
	if err != nil {
		return nil, &CorruptError{Key: formatKey(key), What: err.Error()}
	}
	if id, rest, ok := idOfKey(key); !ok || len(rest) != 0 || id != int64(s.ID) {
		return nil, &CorruptError{Key: formatKey(key), What: "the session in it is " + s.ID.String()}
	}
	return &s, nil
}
