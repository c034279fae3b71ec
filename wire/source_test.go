package wire

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/znode"
)

// source makes random values for round-trip tests. Its seed is printed when a test
// fails; replay with TENURE_SEED=N go test -run NAME ./wire.
type source struct{ *rand.Rand }

func newSource(t testing.TB) source {
	seed := rand.Uint64()
	if s := os.Getenv("TENURE_SEED"); s != "" {
		v, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("TENURE_SEED=%q: %v", s, err)
		}
		seed = v
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("replay: TENURE_SEED=%d go test -run '^%s$' ./wire", seed, t.Name())
		}
	})
	return source{rand.New(rand.NewPCG(seed, 1))}
}

func (s source) flip() bool { return s.IntN(2) == 0 }

func (s source) long() int64 {
	return []int64{0, 1, -1, s.Int64(), -s.Int64(), -1 << 63, 1<<63 - 1}[s.IntN(7)]
}

func (s source) natural() int64 { return s.long() & (1<<63 - 1) }

func (s source) int() int32 { return int32(s.long()) }

func (s source) str() string {
	return []string{"", "a", "é中", `"\/`, "\x00\n\u2028\x7f", "🐂", fmt.Sprint(s.Uint32())}[s.IntN(7)]
}

func (s source) path() string { return "/" + s.str() }

func (s source) data() []byte {
	n := s.IntN(40) - 1
	if n < 0 {
		return nil
	}
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(s.Uint32())
	}
	return b
}

func list[T any](s source, elem func() T) []T {
	out := make([]T, s.IntN(4))
	for i := range out {
		out[i] = elem()
	}
	return out
}

func (s source) strs() []string { return list(s, s.str) }

func (s source) acl() []znode.ACL {
	switch s.IntN(3) {
	case 0:
		return nil
	case 1:
		return znode.OpenACL
	}
	return list(s, func() znode.ACL {
		return znode.ACL{Perms: s.int(), Scheme: []string{"world", "digest", "odd"}[s.IntN(3)], ID: s.str()}
	})
}

func (s source) stat() znode.Stat {
	return znode.Stat{
		Czxid: s.long(), Mzxid: s.long(), Ctime: s.long(), Mtime: s.long(), Version: s.int(),
		Cversion: s.int(), Aversion: s.int(), EphemeralOwner: session.ID(s.long()),
		DataLength: s.int(), NumChildren: s.int(), Pzxid: s.long(),
	}
}

// create makes one that both encodings can carry: containers and TTL znodes always want
// the Stat, and only TTL znodes have a lifetime.
func (s source) create() znode.Op {
	c := &znode.Create{
		Path: s.path(), Data: s.data(), ACL: s.acl(), WantStat: s.flip(),
		Mode: znode.Mode{Kind: znode.Kind(s.IntN(4)), Sequential: s.flip()},
	}
	if c.Mode.Kind == znode.TTL {
		c.TTLMs = s.long()
	}
	c.WantStat = c.WantStat || c.Mode.Kind == znode.Container || c.Mode.Kind == znode.TTL
	return c
}

func (s source) multiOp() znode.Op {
	switch s.IntN(4) {
	case 0:
		return s.create()
	case 1:
		return &znode.Delete{Path: s.path(), Version: s.int()}
	case 2:
		return &znode.SetData{Path: s.path(), Data: s.data(), Version: s.int()}
	}
	return &znode.Check{Path: s.path(), Version: s.int()}
}

func (s source) multi() *znode.Multi {
	m := &znode.Multi{}
	for range s.IntN(4) {
		m.Ops = append(m.Ops, s.multiOp())
	}
	return m
}

// request makes any request of either encoding.
func (s source) request() *Request {
	q := &Request{Xid: s.int(), Seq: s.natural(), Acked: s.natural(), Stale: s.flip()}
	kinds := []func() (Op, any){
		func() (Op, any) { c := s.create(); return OpOf(c), c },
		func() (Op, any) { return OpDelete, &znode.Delete{Path: s.path(), Version: s.int()} },
		func() (Op, any) { return OpSetData, &znode.SetData{Path: s.path(), Data: s.data(), Version: s.int()} },
		func() (Op, any) { return OpSetACL, &znode.SetACL{Path: s.path(), ACL: s.acl(), Version: s.int()} },
		func() (Op, any) { return OpMulti, s.multi() },
		func() (Op, any) { return OpMultiRead, s.multiRead() },
		func() (Op, any) {
			op := []Op{OpExists, OpGetData, OpGetChildren, OpGetChildren2}[s.IntN(4)]
			return op, &PathWatch{Path: s.path(), Watch: s.flip()}
		},
		func() (Op, any) {
			op := []Op{OpGetACL, OpSync, OpGetEphemerals, OpGetAllChildrenNumber}[s.IntN(4)]
			return op, &PathOnly{Path: s.path()}
		},
		func() (Op, any) { return []Op{OpPing, OpCloseSession, OpWhoAmI, OpStatus, OpMembers}[s.IntN(5)], nil },
		func() (Op, any) { return OpAuth, &Auth{Scheme: s.str(), Data: s.data()} },
		func() (Op, any) { return OpSASL, &SASL{Token: s.data()} },
		s.setWatches,
		func() (Op, any) { return OpAddWatch, &AddWatch{Path: s.path(), Mode: s.Int32N(2)} },
		func() (Op, any) {
			return OpRemoveWatches - Op(s.IntN(2)), &RemoveWatches{Path: s.path(), Type: WatcherType(1 + s.IntN(5))}
		},
		func() (Op, any) { return OpReconfig, &Reconfig{s.str(), s.str(), s.str(), s.long()} },
		func() (Op, any) {
			return OpRenew, &Renew{Held: list(s, func() Held { return Held{s.path(), s.long()} })}
		},
		func() (Op, any) { return OpList, &List{s.path(), s.str(), s.int(), s.flip()} },
		func() (Op, any) { return OpSessions, &Sessions{session.ID(s.long()), s.int()} },
		func() (Op, any) { return OpKillSession, &KillSession{session.ID(s.long())} },
		func() (Op, any) {
			return OpChangeMembers, &ChangeMembers{s.long(), list(s, func() MemberStep {
				return MemberStep{MemberStepKind(1 + s.IntN(5)), s.int(), s.str()}
			})}
		},
		func() (Op, any) { return OpTransferLead, &TransferLead{s.int()} },
	}
	q.Op, q.Body = kinds[s.IntN(len(kinds))]()
	return q
}

func (s source) setWatches() (Op, any) {
	op := []Op{OpSetWatches, OpSetWatches2, OpRewatch}[s.IntN(3)]
	w := &SetWatches{RelZxid: s.long(), Data: s.strs(), Exist: s.strs(), Child: s.strs()}
	if op != OpSetWatches {
		w.Persistent, w.Recursive = s.strs(), s.strs()
	}
	return op, w
}

func (s source) multiRead() *MultiRead {
	m := &MultiRead{}
	for range s.IntN(4) {
		m.Ops = append(m.Ops, ReadOp{Op: []Op{OpGetData, OpGetChildren}[s.IntN(2)], Path: s.path()})
	}
	return m
}

// failure is any error code but OK.
func (s source) failure() znode.Error {
	return []znode.Error{-1, -8, -101, -102, -103, -110, -112, -999}[s.IntN(8)]
}
