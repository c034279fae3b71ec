package store

import (
	"bytes"
	"encoding/binary"
	"strings"

	"github.com/tenure-dev/tenure/session"
)

// The key schema. Keys sort bytewise; integers are big-endian, so that they sort
// by value. The first byte names the table:
//
//	n <path>                   a znode: everything but its counters and large data
//	d <path>                   data of more than InlineDataMax bytes
//	c <path>                   counters of a znode that has or had children
//	e <session 8> <path text>  an ephemeral of the session; no value
//	g <zxid 8>                 a closed segment of the history, by its last zxid
//	h <zxid 8>                 changes of one batch, by its last zxid
//	m                          meta: one record
//	r <session 8> <0 8>        window: last and acknowledged seq of the session
//	r <session 8> <seq 8>      results of consecutive writes, by the first seq
//	s <session 8>              a session
//	t <time 8> <path text>     what may be reaped from that time on; no value
//
// <path> is the parent's path, NUL and the name, where the root's path as a parent
// is empty: "/a/b" is "/a" NUL "b", "/a" is NUL "a". The root itself is the empty
// string. NUL cannot be in a path, so
//   - a znode is one get;
//   - the children of /p are one range, from "/p" 00 to "/p" 01, in the order of
//     their names;
//   - all that is below the children is one more, from "/p/" to "/p0", because
//     every parent there begins with "/p/".
const (
	tableChildren  = 'c'
	tableData      = 'd'
	tableEphemeral = 'e'
	tableSegment   = 'g'
	tableHistory   = 'h'
	tableMeta      = 'm'
	tableNode      = 'n'
	tableResult    = 'r'
	tableSession   = 's'
	tableReap      = 't'
)

var metaKey = []byte{tableMeta}

// InlineDataMax is the largest data in bytes that is stored in the znode's own
// record. Larger data has a record of its own, which listings, Stat and setACL
// do not touch.
const InlineDataMax = 4096

// appendPathKey appends the key of path in one of the tables n, d and c. path must
// begin with a slash. No two paths without NUL have the same key.
func appendPathKey(dst []byte, table byte, path string) []byte {
	dst = append(dst, table)
	if path == "/" {
		return dst
	}
	i := strings.LastIndexByte(path, '/')
	dst = append(dst, path[:i]...)
	dst = append(dst, 0)
	return append(dst, path[i+1:]...)
}

// pathOfKey is the inverse of appendPathKey. ok is false if key is none.
func pathOfKey(key []byte) (path string, ok bool) {
	rest := key[1:]
	if len(rest) == 0 {
		return "/", true
	}
	i := bytes.IndexByte(rest, 0)
	if i < 0 || bytes.IndexByte(rest[i+1:], 0) >= 0 || i+1 == len(rest) {
		return "", false
	}
	if i > 0 && (rest[0] != '/' || rest[i-1] == '/') || bytes.IndexByte(rest[i+1:], '/') >= 0 {
		return "", false
	}
	b := make([]byte, 0, len(rest))
	b = append(b, rest[:i]...)
	b = append(b, '/')
	return string(append(b, rest[i+1:]...)), true
}

// bounds is a range of keys: lower is in it, upper is not.
type bounds struct{ lower, upper []byte }

// childBounds is the range of path's children in table.
func childBounds(table byte, path string) bounds {
	dir := strings.TrimSuffix(path, "/")
	b := make([]byte, 0, 2*(len(dir)+2))
	b = append(append(append(b, table), dir...), 0)
	n := len(b)
	b = append(append(append(b, table), dir...), 1)
	return bounds{b[:n:n], b[n:]}
}

// belowBounds is the range of what is below path's children in table.
func belowBounds(table byte, path string) bounds {
	dir := strings.TrimSuffix(path, "/")
	b := make([]byte, 0, 2*(len(dir)+2))
	b = append(append(append(b, table), dir...), '/')
	n := len(b)
	b = append(append(append(b, table), dir...), '/'+1)
	return bounds{b[:n:n], b[n:]}
}

// tableBounds is the range of a whole table.
func tableBounds(table byte) bounds {
	return bounds{[]byte{table}, []byte{table + 1}}
}

// appendID appends a key of one of the tables g, h and s, or the beginning of one
// in e, r and t.
func appendID(dst []byte, table byte, id int64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, table), uint64(id))
}

func appendEphemeralKey(dst []byte, id session.ID, path string) []byte {
	return append(appendID(dst, tableEphemeral, int64(id)), path...)
}

// appendResultKey appends the key of the results that begin with seq; with seq 0
// that of the session's window.
func appendResultKey(dst []byte, id session.ID, seq int64) []byte {
	return binary.BigEndian.AppendUint64(appendID(dst, tableResult, int64(id)), uint64(seq))
}

func appendReapKey(dst []byte, atMs int64, path string) []byte {
	return append(appendID(dst, tableReap, atMs), path...)
}

// idOfKey returns the first integer of a key, false if the key is too short.
func idOfKey(key []byte) (id int64, rest []byte, ok bool) {
	if len(key) < 9 {
		return 0, nil, false
	}
	return int64(binary.BigEndian.Uint64(key[1:9])), key[9:], true
}

// ephemeralBounds is the range of the ephemerals of id whose path begins with prefix.
func ephemeralBounds(id session.ID, prefix string) bounds {
	return prefixBounds(appendEphemeralKey(nil, id, prefix))
}

// prefixBounds is the range of the keys that begin with prefix, whose first byte is
// a table and so never 0xff.
func prefixBounds(prefix []byte) bounds {
	upper := bytes.Clone(prefix)
	for i := len(upper) - 1; ; i-- {
		if upper[i]++; upper[i] != 0 {
			return bounds{prefix, upper[:i+1]}
		}
	}
}
