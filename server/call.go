package server

import (
	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// callState says how far a call has come. Only the first calls of a connection's
// queue are ever beyond callWaiting.
type callState uint8

const (
	callWaiting   callState = iota // nothing was done
	callProposed                   // in the log's queue; its result will come from apply
	callConsulted                  // somebody else is asked; then it has its reply
)

// call is one request of a connection from its decoding until its reply is in the
// outbox. It belongs to its connection's queue and is guarded by that connection's
// lock; srv.pending holds those that are proposed.
type call struct {
	c     *conn
	req   wire.Request
	state callState
	// cleared: a read barrier asked for after this read arrived was satisfied.
	cleared bool
	// reply, if set, is the answer already (addauth, decode errors, what was consulted): only
	// its turn is awaited.
	reply *wire.Reply
	// end, if set, ends the connection behind reply.
	end *closeReason
	// connect, if set, makes this the connection's handshake.
	connect *wire.ConnectRequest
	// ids are the connection's identities when the request arrived.
	ids   []znode.Identity
	bytes int // of the request's message
	// start is when the request's bytes arrived, nanoseconds of the server's clock.
	start int64
}

// callOverhead is what a queued request costs besides its bytes.
const callOverhead = 512

// size is what the call counts against the bound on outstanding bytes.
func (k *call) size() int64 { return int64(k.bytes) + callOverhead }

// isWrite reports whether the call goes through the log, as handshakes do. A numbered write
// that was refused when it was decoded does too: its number must be used up.
func (k *call) isWrite() bool {
	if k.reply != nil {
		return k.req.Seq > 0
	}
	return k.connect != nil || isUpdate(k.req.Op)
}

// isUpdate reports whether an operation needs a transaction.
func isUpdate(op wire.Op) bool {
	switch op {
	case wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer, wire.OpCreateTTL, wire.OpDelete,
		wire.OpSetData, wire.OpSetACL, wire.OpMulti, wire.OpCloseSession, wire.OpKillSession:
		return true
	}
	return false
}

// access is what the call needs of whoever asks.
func (k *call) access() znode.Access { return wire.AccessOf(k.req.Op) }

// needsBarrier reports whether the call may be answered only after a read barrier: all
// that is not stale, and through ZooKeeper's door only what orders a session after others.
// A heartbeat needs one too: it is acknowledged only by a leader whose leadership
// was confirmed after it arrived (promise P6).
func (k *call) needsBarrier() bool {
	return k.reply == nil && !k.isWrite() && !k.req.Stale && (!k.c.terms.localReads || k.req.Op == wire.OpSync || k.req.Op == wire.OpPing)
}

// catchesUp reports whether events go into the outbox while the call is executed: then
// the replies before it must be there already.
func (k *call) catchesUp() bool {
	return k.req.Op == wire.OpRewatch || k.req.Op == wire.OpSetWatches || k.req.Op == wire.OpSetWatches2
}

// txn builds the transaction of a write.
func (k *call) txn() znode.Txn {
	if k.connect != nil {
		return znode.Txn{Owner: k.c.owner(), Op: k.c.handshakeOp(k.connect)}
	}
	t := znode.Txn{Session: k.c.sessionID(), Owner: k.c.owner(), Seq: k.req.Seq, Acked: k.req.Acked, Auth: k.ids}
	switch {
	case k.reply != nil:
		t.Op = &znode.Multi{}
	case k.req.Op == wire.OpCloseSession:
		t.Op = &znode.CloseSession{Session: t.Session}
	case k.req.Op == wire.OpKillSession:
		t.Op = &znode.CloseSession{Session: k.req.Body.(*wire.KillSession).Session}
	default:
		t.Op = k.req.Body.(znode.Op)
	}
	return t
}

// callQueue is a connection's requests in order of arrival: a ring that grows by
// doubling and is dropped when empty, since an idle connection should cost nothing.
type callQueue struct {
	ring []*call
	head int
	n    int
}

func (q *callQueue) len() int { return q.n }

func (q *callQueue) at(i int) *call { return q.ring[(q.head+i)%len(q.ring)] }

func (q *callQueue) push(k *call) {
	if q.n == len(q.ring) {
		grown := make([]*call, max(8, 2*q.n))
		for i := range q.n {
			grown[i] = q.at(i)
		}
		q.ring, q.head = grown, 0
	}
	q.ring[(q.head+q.n)%len(q.ring)] = k
	q.n++
}

func (q *callQueue) pop() *call {
	k := q.ring[q.head]
	q.ring[q.head] = nil
	q.head = (q.head + 1) % len(q.ring)
	q.n--
	return k
}

// popLast takes back the call that came last.
func (q *callQueue) popLast() *call {
	q.n--
	i := (q.head + q.n) % len(q.ring)
	k := q.ring[i]
	q.ring[i] = nil
	return k
}

// release drops the ring of an empty queue.
func (q *callQueue) release() {
	if q.n == 0 {
		*q = callQueue{}
	}
}
