package wire

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/znode"
)

func typeName(v any) string { return fmt.Sprintf("%T", v) }

// juteReader reads ZooKeeper's binary form: big-endian numbers, and lengths of 4 bytes
// where -1 means null. Its error sticks: after the first broken rule everything reads as
// zero, so that a record's reader checks once, at its end. Nothing it returns aliases
// buf, and it allocates a small multiple of buf at most: every count is checked against
// the bytes that are left. One goroutine may use it at a time.
type juteReader struct {
	buf []byte
	off int
	// rule is what was broken ("" while nothing is) by value, at offset at.
	rule  string
	value int64
	at    int
}

func (r *juteReader) fail(rule string, value int64) {
	if r.rule == "" {
		r.rule, r.value, r.at = rule, value, r.off
	}
	r.off = len(r.buf)
}

func (r *juteReader) failed() bool { return r.rule != "" }

// detail says what was broken, "" if nothing was.
func (r *juteReader) detail() string {
	if r.rule == "" {
		return ""
	}
	return fmt.Sprintf("offset %d: %s (%d)", r.at, r.rule, r.value)
}

// err is detail as an error of decoding what.
func (r *juteReader) err(what string) error {
	if r.rule == "" {
		return nil
	}
	return fmt.Errorf("wire: %s: %s", what, r.detail())
}

// take returns the next n bytes, nil if there are fewer. They alias buf.
func (r *juteReader) take(n int) []byte {
	if left := len(r.buf) - r.off; left < n {
		r.fail("bytes missing", int64(n-left))
		return nil
	}
	b := r.buf[r.off : r.off+n]
	r.off += n
	return b
}

func (r *juteReader) int() int32 {
	if b := r.take(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

func (r *juteReader) long() int64 {
	if b := r.take(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

// bool takes any byte but 0 as true, as ZooKeeper does.
func (r *juteReader) bool() bool {
	b := r.take(1)
	return b != nil && b[0] != 0
}

// field returns the bytes of a string or buffer, aliasing buf; null reports length -1.
func (r *juteReader) field() (b []byte, null bool) {
	n := r.int()
	switch {
	case r.failed():
		return nil, false
	case n == -1:
		return nil, true
	case n < 0:
		r.fail("length below -1", int64(n))
		return nil, false
	case int(n) > len(r.buf)-r.off:
		r.fail("length beyond the end of the message", int64(n))
		return nil, false
	}
	return r.take(int(n)), false
}

// str reads null as "".
func (r *juteReader) str() string {
	b, _ := r.field()
	return string(b)
}

// path is str where null is an error: ZooKeeper answers it with MARSHALLINGERROR.
func (r *juteReader) path() string {
	b, null := r.field()
	if null {
		r.fail("path is null", -1)
	}
	return string(b)
}

func (r *juteReader) word() string {
	b, _ := r.field()
	return internScheme(b)
}

// data returns nil for null and a non-nil empty slice for empty.
func (r *juteReader) data() []byte {
	b, null := r.field()
	if null || r.failed() {
		return nil
	}
	c := make([]byte, len(b))
	copy(c, b)
	return c
}

// count reads the length of a vector whose elements take sizeMin bytes or more; -1 for
// null.
func (r *juteReader) count(sizeMin int) int {
	n := r.int()
	switch {
	case r.failed():
		return 0
	case n < -1:
		r.fail("count below -1", int64(n))
		return 0
	case int64(n)*int64(sizeMin) > int64(len(r.buf)-r.off):
		r.fail("count beyond the end of the message", int64(n))
		return 0
	}
	return int(n)
}

// strs returns nil for null. All strings share one allocation: those who ask for a list
// of names use all of it or none.
func (r *juteReader) strs() []string {
	n := r.count(4)
	if n <= 0 {
		return emptyOrNil[string](n)
	}
	start := r.off
	for range n {
		r.field()
	}
	if r.failed() {
		return nil
	}
	all := string(r.buf[start:r.off])
	strs := make([]string, n)
	r.off = start
	for i := range strs {
		b, _ := r.field()
		strs[i] = all[r.off-start-len(b) : r.off-start]
	}
	return strs
}

// paths is strs where null is an error.
func (r *juteReader) paths() []string {
	s := r.strs()
	if s == nil {
		r.fail("vector is null", -1)
	}
	return s
}

// names is strs where null is as good as empty.
func (r *juteReader) names() []string {
	if s := r.strs(); s != nil {
		return s
	}
	return []string{}
}

// emptyOrNil keeps a null vector apart from an empty one.
func emptyOrNil[T any](n int) []T {
	if n == -1 {
		return nil
	}
	return []T{}
}

// openACLVector is a vector of only world:anyone:cdrwa.
const openACLVector = "\x00\x00\x00\x01" + "\x00\x00\x00\x1f" + "\x00\x00\x00\x05world" + "\x00\x00\x00\x06anyone"

// acl returns znode.OpenACL itself for its content: nearly every create has it.
func (r *juteReader) acl() []znode.ACL {
	if b := r.buf[r.off:]; len(b) >= len(openACLVector) && string(b[:len(openACLVector)]) == openACLVector {
		r.off += len(openACLVector)
		return znode.OpenACL
	}
	n := r.count(12)
	if n <= 0 {
		return emptyOrNil[znode.ACL](n)
	}
	acl := make([]znode.ACL, n)
	for i := range acl {
		acl[i] = znode.ACL{Perms: r.int(), Scheme: r.word(), ID: r.word()}
	}
	return acl
}

const statSize = 68

func (r *juteReader) stat() (s znode.Stat) {
	b := r.take(statSize)
	if b == nil {
		return s
	}
	be := binary.BigEndian
	s.Czxid, s.Mzxid = int64(be.Uint64(b)), int64(be.Uint64(b[8:]))
	s.Ctime, s.Mtime = int64(be.Uint64(b[16:])), int64(be.Uint64(b[24:]))
	s.Version, s.Cversion = int32(be.Uint32(b[32:])), int32(be.Uint32(b[36:]))
	s.Aversion = int32(be.Uint32(b[40:]))
	s.EphemeralOwner = session.ID(be.Uint64(b[44:]))
	s.DataLength, s.NumChildren = int32(be.Uint32(b[52:])), int32(be.Uint32(b[56:]))
	s.Pzxid = int64(be.Uint64(b[60:]))
	return s
}

const lifetimeSize = 12

// lifetime reads what putLifetime writes.
func (r *juteReader) lifetime() znode.Lifetime {
	flags := r.int()
	kind := slices.Index(kindFlags[:], flags)
	if kind < 0 {
		r.fail("not the flags of a kind of znode", int64(flags))
		return znode.Lifetime{}
	}
	return znode.Lifetime{Kind: znode.Kind(kind), TTLMs: r.long()}
}
