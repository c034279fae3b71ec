package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/znode"
)

// Proposal is one transaction as it rides in a log entry: a Txn with the address of
// whoever waits for its result. It is a plain value.
type Proposal struct {
	// Origin is a number that the proposing process drew at its start, so that a
	// replay after a restart wakes nobody. ID is the process's own number.
	Origin, ID uint64
	// Txn's Owner is nobody or a connection of the same Origin.
	Txn znode.Txn
}

// The first byte of every proposal is its version: members of different releases may have
// made the proposals of one entry. The first version knew no owners.
const (
	proposalVersion          = 2
	proposalVersionOwnerless = 1
)

// proposalSizeMin is the least that a proposal takes: version, origin, five counts and
// numbers of one byte, and the kind of its operation.
const proposalSizeMin = 1 + 8 + 5 + 1

// The kinds of operation in a proposal. Zero is none, so that zeroed bytes are found out.
const (
	kindCreate byte = iota + 1
	kindDelete
	kindSetData
	kindSetACL
	kindCheck
	kindMulti
	kindOpenSession
	kindCloseSession
	kindReap
	kindResumeSession
)

// The byte that holds a create's mode: its Kind in the low bits, and these.
const (
	modeKindMask   = 0x0f
	modeSequential = 0x10
	modeWantStat   = 0x20
)

// AppendProposal appends p's persistent form. It panics if p's operation is nil or a
// Multi of what Multi does not allow, or if its owner is another process's: such a log
// entry could not be read back.
func AppendProposal(dst []byte, p *Proposal) []byte {
	dst = binary.BigEndian.AppendUint64(append(dst, proposalVersion), p.Origin)
	t := &p.Txn
	if t.Owner != ownerOf(p.Origin, t.Owner.Bind) {
		panic(fmt.Sprintf("wire: process %#x proposes for a connection of process %#x", p.Origin, t.Owner.Origin))
	}
	dst = recUint(recInt(recUint(dst, p.ID), int64(t.Session)), t.Owner.Bind)
	dst = recInt(recInt(dst, t.Seq), t.Acked)
	dst = recUint(dst, uint64(len(t.Auth)))
	for _, id := range t.Auth {
		dst = recStr(recStr(dst, id.Scheme), id.ID)
	}
	return recOp(dst, t.Op)
}

// ownerOf is connection bind of process origin; there is none with the number 0.
func ownerOf(origin, bind uint64) session.Owner {
	if bind == 0 {
		return session.Owner{}
	}
	return session.Owner{Origin: origin, Bind: bind}
}

func recOp(dst []byte, op znode.Op) []byte {
	switch op := op.(type) {
	case *znode.Multi:
		dst = recUint(append(dst, kindMulti), uint64(len(op.Ops)))
		for _, o := range op.Ops {
			dst = recMultiOp(dst, o)
		}
		return dst
	case *znode.SetACL:
		return recInt32(recACL(recStr(append(dst, kindSetACL), op.Path), op.ACL), op.Version)
	case *znode.OpenSession:
		dst = append(recInt32(append(dst, kindOpenSession), op.TimeoutMs), op.Password[:]...)
		return recInt(dst, op.Seen)
	case *znode.ResumeSession:
		dst = append(recInt(append(dst, kindResumeSession), int64(op.Session)), op.Password[:]...)
		return recInt(dst, op.Seen)
	case *znode.CloseSession:
		dst = putBool(recInt(append(dst, kindCloseSession), int64(op.Session)), op.Expired)
		return recOwner(dst, op.Owner)
	case *znode.Reap:
		return recStr(append(dst, kindReap), op.Path)
	}
	return recMultiOp(dst, op)
}

// recMultiOp appends an operation that may stand in a multi.
func recMultiOp(dst []byte, op znode.Op) []byte {
	switch op := op.(type) {
	case *znode.Create:
		mode := byte(op.Mode.Kind)
		if op.Mode.Sequential {
			mode |= modeSequential
		}
		if op.WantStat {
			mode |= modeWantStat
		}
		dst = recStr(append(dst, kindCreate, mode), op.Path)
		return recInt(recACL(recData(dst, op.Data), op.ACL), op.TTLMs)
	case *znode.Delete:
		return recInt32(recStr(append(dst, kindDelete), op.Path), op.Version)
	case *znode.SetData:
		return recInt32(recData(recStr(append(dst, kindSetData), op.Path), op.Data), op.Version)
	case *znode.Check:
		return recInt32(recStr(append(dst, kindCheck), op.Path), op.Version)
	}
	panic("wire: a log entry has no operation of type " + typeName(op))
}

func (r *recordReader) proposal(p *Proposal) {
	version := r.byte()
	if version != proposalVersion && version != proposalVersionOwnerless {
		r.off--
		r.fail("unknown version of a proposal", version)
	}
	if b := r.take(8); b != nil {
		p.Origin = binary.BigEndian.Uint64(b)
	}
	p.ID = r.uint()
	t := &p.Txn
	t.Session = session.ID(r.int())
	if version != proposalVersionOwnerless {
		t.Owner = ownerOf(p.Origin, r.uint())
	}
	t.Seq, t.Acked = r.int(), r.int()
	t.Auth = r.auth()
	t.Op = r.op(version)
}

// auth reads identities. Neighbours in an entry mostly come from the same client, so a
// list that is equal to the one before is that one.
func (r *recordReader) auth() []znode.Identity {
	n := r.count(2)
	if n == 0 {
		return nil
	}
	start := r.off
	for range 2 * n {
		r.take(r.count(1))
	}
	if r.err != nil {
		return nil
	}
	if raw := r.buf[start:r.off]; !bytes.Equal(raw, r.authRaw) {
		r.off = start
		auth := make([]znode.Identity, n)
		for i := range auth {
			auth[i] = znode.Identity{Scheme: r.word(), ID: r.str()}
		}
		r.authRaw, r.authLast = raw, auth
	}
	return r.authLast
}

func (r *recordReader) op(version byte) znode.Op {
	switch kind := r.byte(); kind {
	case kindMulti:
		n := r.count(3)
		m := &znode.Multi{Ops: make([]znode.Op, 0, n)}
		for i := 0; i < n && r.err == nil; i++ {
			m.Ops = append(m.Ops, r.multiOp(r.byte()))
		}
		return m
	case kindSetACL:
		return &znode.SetACL{Path: r.str(), ACL: r.acl(), Version: r.int32()}
	case kindOpenSession:
		op := &znode.OpenSession{TimeoutMs: r.int32(), Password: r.password()}
		if version != proposalVersionOwnerless {
			op.Seen = r.int()
		}
		return op
	case kindResumeSession:
		return &znode.ResumeSession{Session: session.ID(r.int()), Password: r.password(), Seen: r.int()}
	case kindCloseSession:
		op := &znode.CloseSession{Session: session.ID(r.int()), Expired: r.flag()}
		if version != proposalVersionOwnerless {
			op.Owner = r.owner()
		}
		return op
	case kindReap:
		return &znode.Reap{Path: r.str()}
	default:
		return r.multiOp(kind)
	}
}

func (r *recordReader) flag() bool {
	b := r.byte()
	if b > 1 {
		r.off--
		r.fail("flag is neither 0 nor 1", b)
	}
	return b == 1
}

// multiOp reads what is behind the kind of an operation that may stand in a multi.
func (r *recordReader) multiOp(kind byte) znode.Op {
	switch kind {
	case kindCreate:
		c := &znode.Create{}
		r.mode(c)
		c.Path, c.Data, c.ACL, c.TTLMs = r.str(), r.data(), r.acl(), r.int()
		return c
	case kindDelete:
		return &znode.Delete{Path: r.str(), Version: r.int32()}
	case kindSetData:
		return &znode.SetData{Path: r.str(), Data: r.data(), Version: r.int32()}
	case kindCheck:
		return &znode.Check{Path: r.str(), Version: r.int32()}
	}
	r.fail("unknown kind of operation in front of this", kind)
	return nil
}

func (r *recordReader) mode(c *znode.Create) {
	b := r.byte()
	kind := znode.Kind(b & modeKindMask)
	if kind > znode.TTL || b&^(modeKindMask|modeSequential|modeWantStat) != 0 {
		r.off--
		r.fail("unknown mode of a create", b)
		return
	}
	c.Mode = znode.Mode{Kind: kind, Sequential: b&modeSequential != 0}
	c.WantStat = b&modeWantStat != 0
}
