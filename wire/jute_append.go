package wire

import (
	"encoding/binary"

	"github.com/tenure-dev/tenure/znode"
)

// The functions below append ZooKeeper's binary form of one value.

func putInt(dst []byte, v int32) []byte  { return binary.BigEndian.AppendUint32(dst, uint32(v)) }
func putLong(dst []byte, v int64) []byte { return binary.BigEndian.AppendUint64(dst, uint64(v)) }

func putBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, 1)
	}
	return append(dst, 0)
}

func putStr(dst []byte, s string) []byte {
	return append(putInt(dst, int32(len(s))), s...)
}

// putData writes nil as null.
func putData(dst, b []byte) []byte {
	if b == nil {
		return putInt(dst, -1)
	}
	return append(putInt(dst, int32(len(b))), b...)
}

// putStrs writes nil as an empty vector: no vector that a peer expects may be null.
func putStrs(dst []byte, strs []string) []byte {
	dst = putInt(dst, int32(len(strs)))
	for _, s := range strs {
		dst = putStr(dst, s)
	}
	return dst
}

// putACL writes nil as null.
func putACL(dst []byte, acl []znode.ACL) []byte {
	if acl == nil {
		return putInt(dst, -1)
	}
	dst = putInt(dst, int32(len(acl)))
	for _, a := range acl {
		dst = putStr(putStr(putInt(dst, a.Perms), a.Scheme), a.ID)
	}
	return dst
}

func putStat(dst []byte, s *znode.Stat) []byte {
	dst = putLong(putLong(dst, s.Czxid), s.Mzxid)
	dst = putLong(putLong(dst, s.Ctime), s.Mtime)
	dst = putInt(putInt(putInt(dst, s.Version), s.Cversion), s.Aversion)
	dst = putLong(dst, int64(s.EphemeralOwner))
	dst = putInt(putInt(dst, s.DataLength), s.NumChildren)
	return putLong(dst, s.Pzxid)
}

// kindFlags are the kinds as the flags of a create that is not sequential.
var kindFlags = [...]int32{znode.Persistent: 0, znode.Ephemeral: 1, znode.Container: 4, znode.TTL: 5}

func putLifetime(dst []byte, l znode.Lifetime) []byte {
	return putLong(putInt(dst, kindFlags[l.Kind]), l.TTLMs)
}
