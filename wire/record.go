package wire

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/znode"
)

// The persistent formats (log entries, kept results, change history, sessions) are made
// of varints as in encoding/binary, strings and bytes with their length in front, and
// fixed bytes. Each value has exactly one encoding, so that equal state is equal bytes
// on all members. Golden tests hold the formats: a change needs a new version byte.

// recordReader reads these forms. Its error sticks: after the first broken rule
// everything reads as zero. Nothing it returns aliases buf. One goroutine may use it at
// a time.
type recordReader struct {
	buf []byte
	off int
	err error
	// The identities read last, and their bytes in buf.
	authRaw  []byte
	authLast []znode.Identity
}

func (r *recordReader) fail(rule string, value any) {
	if r.err == nil {
		r.err = fmt.Errorf("offset %d: %s (%v)", r.off, rule, value)
	}
	r.off = len(r.buf)
}

func (r *recordReader) left() int { return len(r.buf) - r.off }

// take returns the next n bytes, nil if there are fewer. They alias buf.
func (r *recordReader) take(n int) []byte {
	if r.left() < n {
		r.fail("bytes missing", n-r.left())
		return nil
	}
	b := r.buf[r.off : r.off+n]
	r.off += n
	return b
}

func (r *recordReader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

// formatVersion is the byte that every format starts with.
type formatVersion byte

func (want formatVersion) read(r *recordReader) {
	if got := r.byte(); got != byte(want) && r.err == nil {
		r.off--
		r.fail(fmt.Sprintf("format version is not %d", want), got)
	}
}

func (r *recordReader) uint() uint64 {
	v, n := binary.Uvarint(r.buf[r.off:])
	switch {
	case n <= 0:
		r.fail("not a varint", n)
		return 0
	case n > 1 && r.buf[r.off+n-1] == 0:
		r.fail("varint longer than needed", v)
		return 0
	}
	r.off += n
	return v
}

// int reads a signed number in zigzag form.
func (r *recordReader) int() int64 {
	v := r.uint()
	return int64(v>>1) ^ -int64(v&1)
}

func (r *recordReader) int32() int32 {
	v := r.int()
	if v < math.MinInt32 || v > math.MaxInt32 {
		r.fail("not a 32-bit number", v)
		return 0
	}
	return int32(v)
}

// count reads how many elements of sizeMin bytes or more follow.
func (r *recordReader) count(sizeMin int) int {
	v := r.uint()
	if v > uint64(r.left()/sizeMin) {
		r.fail("count beyond the end", v)
		return 0
	}
	return int(v)
}

func (r *recordReader) str() string { return string(r.take(r.count(1))) }

func (r *recordReader) word() string { return internScheme(r.take(r.count(1))) }

// data reads bytes whose count is one more than there are; 0 is nil.
func (r *recordReader) data() []byte {
	n := r.uint()
	switch {
	case n == 0:
		return nil
	case n-1 > uint64(r.left()):
		r.fail("count beyond the end", n-1)
		return nil
	}
	b := make([]byte, n-1)
	copy(b, r.take(len(b)))
	return b
}

// Access lists start with one of these, or with their length plus aclCount.
const (
	aclNil   = 0
	aclOpen  = 1 // exactly znode.OpenACL
	aclCount = 2
)

func (r *recordReader) acl() []znode.ACL {
	at := r.off
	n := r.uint()
	switch n {
	case aclNil:
		return nil
	case aclOpen:
		return znode.OpenACL
	}
	if n -= aclCount; n > uint64(r.left()/3) {
		r.fail("count beyond the end", n)
		return nil
	}
	acl := make([]znode.ACL, n)
	for i := range acl {
		acl[i] = znode.ACL{Perms: r.int32(), Scheme: r.word(), ID: r.word()}
	}
	if isOpen(acl) && r.err == nil {
		r.off = at
		r.fail("open access list written in full", n)
	}
	return acl
}

func (r *recordReader) stat() (s znode.Stat) {
	s.Czxid, s.Mzxid = r.int(), r.int()
	s.Ctime, s.Mtime = r.int(), r.int()
	s.Version, s.Cversion, s.Aversion = r.int32(), r.int32(), r.int32()
	s.EphemeralOwner = session.ID(r.int())
	s.DataLength, s.NumChildren = r.int32(), r.int32()
	s.Pzxid = r.int()
	return s
}

func (r *recordReader) password() (p [session.PasswordSize]byte) {
	copy(p[:], r.take(session.PasswordSize))
	return p
}

// owner reads the number of a connection and, unless it is 0, the origin of its process.
func (r *recordReader) owner() session.Owner {
	bind := r.uint()
	if bind == 0 {
		return session.Owner{}
	}
	origin := uint64(0)
	if b := r.take(8); b != nil {
		origin = binary.BigEndian.Uint64(b)
	}
	return session.Owner{Origin: origin, Bind: bind}
}

// done checks that nothing is left and names what was read in the error.
func (r *recordReader) done(what string) error {
	if r.err == nil && r.left() > 0 {
		r.fail("bytes behind the end", r.left())
	}
	if r.err != nil {
		return fmt.Errorf("wire: %s: %w", what, r.err)
	}
	return nil
}

// The functions below append what recordReader reads.

func recUint(dst []byte, v uint64) []byte { return binary.AppendUvarint(dst, v) }
func recInt(dst []byte, v int64) []byte   { return binary.AppendVarint(dst, v) }
func recInt32(dst []byte, v int32) []byte { return binary.AppendVarint(dst, int64(v)) }

func recStr(dst []byte, s string) []byte { return append(recUint(dst, uint64(len(s))), s...) }

// recOwner writes a connection without a number as nobody.
func recOwner(dst []byte, o session.Owner) []byte {
	if dst = recUint(dst, o.Bind); o.Bind == 0 {
		return dst
	}
	return binary.BigEndian.AppendUint64(dst, o.Origin)
}

func recData(dst, b []byte) []byte {
	if b == nil {
		return append(dst, 0)
	}
	return append(recUint(dst, uint64(len(b))+1), b...)
}

func recACL(dst []byte, acl []znode.ACL) []byte {
	if acl == nil {
		return append(dst, aclNil)
	}
	if isOpen(acl) {
		return append(dst, aclOpen)
	}
	dst = recUint(dst, uint64(len(acl))+aclCount)
	for _, a := range acl {
		dst = recStr(recStr(recInt32(dst, a.Perms), a.Scheme), a.ID)
	}
	return dst
}

func recStat(dst []byte, s *znode.Stat) []byte {
	dst = recInt(recInt(dst, s.Czxid), s.Mzxid)
	dst = recInt(recInt(dst, s.Ctime), s.Mtime)
	dst = recInt32(recInt32(recInt32(dst, s.Version), s.Cversion), s.Aversion)
	dst = recInt(dst, int64(s.EphemeralOwner))
	dst = recInt32(recInt32(dst, s.DataLength), s.NumChildren)
	return recInt(dst, s.Pzxid)
}
