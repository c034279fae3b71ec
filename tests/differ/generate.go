package differ

import (
	"math/rand/v2"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// Generate makes the sequence of a seed: steps with n requests or a few more in all. Names
// are few, so that requests meet.
func Generate(seed uint64, n int) []Step {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0))}
	// Each seed has its own bias, so that some are crowded and some are sparse.
	g.names = 2 + g.IntN(3)
	g.bursts = g.IntN(20)
	var steps []Step
	for requests := 0; requests < n; {
		s := g.step()
		requests += max(1, len(s.Requests))
		steps = append(steps, s)
	}
	return steps
}

// generator makes random steps. One goroutine uses it.
type generator struct {
	*rand.Rand
	names, bursts int
	// session is the one whose step is made.
	session int
}

func (g *generator) one(in int) bool { return g.IntN(in) == 0 }

// weighted returns the index of one of the weights, by weight.
func (g *generator) weighted(weights ...int) int {
	sum := 0
	for _, w := range weights {
		sum += w
	}
	at := g.IntN(sum)
	for i, w := range weights {
		if at -= w; at < 0 {
			return i
		}
	}
	panic("unreachable: the weights' sum is above at")
}

func pick[T any](g *generator, from []T) T { return from[g.IntN(len(from))] }

func (g *generator) step() Step {
	g.session = g.IntN(sessions)
	s := Step{Session: g.session}
	switch {
	case g.one(150):
		s.Action = Drop
	case g.one(150):
		s.Action = Resume
		s.Credential = Credential(g.weighted(8, 2, 1, 1))
		s.Seen = g.moment()
		s.TimeoutMs = pick(g, []int32{timeouts[g.session], 15000, 500000})
		s.Old = g.one(2)
	case g.one(200):
		s.Action = Close
		for range g.IntN(3) {
			s.Requests = append(s.Requests, g.request())
		}
	case g.one(2500):
		s.Action = Expire
		for range 1 + g.IntN(3) {
			s.Requests = append(s.Requests, Request{Op: wire.OpCreate, Path: g.path(), ACL: znode.OpenACL, Flags: 1})
		}
		s.Requests = append(s.Requests, g.burst()...)
	case g.IntN(100) < g.bursts:
		s.Requests = g.burst()
	case g.one(12):
		s.Requests = []Request{g.rare()}
	default:
		s.Requests = []Request{g.request()}
	}
	return s
}

// burst makes requests that are sent at once. What may be read must not change in front of
// those for which it matters (exists-read, set-watches-acl), and no write stands behind a
// setACL (pipelined-acl).
func (g *generator) burst() []Request {
	var all []Request
	writes, setsACL := false, false
	for range 2 + g.IntN(6) {
		q := g.request()
		for writes && (q.setsWatches() || q.Op == wire.OpExists) || setsACL && q.isWrite() {
			q = g.request()
		}
		writes = writes || q.isWrite()
		setsACL = setsACL || q.Op == wire.OpSetACL
		all = append(all, q)
	}
	return all
}

func (q *Request) isWrite() bool {
	switch q.Op {
	case wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer, wire.OpCreateTTL, wire.OpDelete, wire.OpSetData, wire.OpSetACL, wire.OpMulti:
		return true
	}
	return false
}

func (q *Request) setsWatches() bool { return q.Op == wire.OpSetWatches || q.Op == wire.OpSetWatches2 }

func (g *generator) moment() Moment {
	return [...]Moment{MomentLast, MomentZero, MomentFuture, MomentReply + Moment(g.IntN(60))}[g.weighted(10, 2, 1, 6)]
}

// request makes one that may stand anywhere, also in a burst: the connection survives it.
func (g *generator) request() Request {
	q := g.wellFormed()
	switch {
	case g.one(60) && !q.needsCare():
		q.Cut = 1 + g.IntN(12)
	case g.one(80):
		q.Xid = pick(g, []int32{-8, -4, -3, 1<<31 - 1, -1 << 31, 7})
	}
	return q
}

// needsCare reports whether another operation may come out when the end is cut off.
func (q *Request) needsCare() bool {
	switch q.Op {
	case wire.OpAuth, wire.OpSASL, wire.OpPing, wire.OpWhoAmI:
		return true
	}
	return false
}

func (g *generator) wellFormed() Request {
	switch g.weighted(24, 10, 12, 8, 9, 4, 4, 9, 9, 3, 1, 1, 1, 2, 2, 4, 4, 3) {
	case 0:
		return g.create()
	case 1:
		return Request{Op: wire.OpDelete, Path: g.path(), Version: g.version()}
	case 2:
		return Request{Op: wire.OpSetData, Path: g.path(), Data: g.data(), Version: g.version()}
	case 3:
		return g.read(wire.OpExists)
	case 4:
		return g.read(wire.OpGetData)
	case 5:
		return Request{Op: wire.OpGetACL, Path: g.readPath()}
	case 6:
		return Request{Op: wire.OpSetACL, Path: g.path(), ACL: g.acl(), Version: g.version()}
	case 7:
		return g.read(pick(g, []wire.Op{wire.OpGetChildren, wire.OpGetChildren2}))
	case 8:
		return g.multi()
	case 9:
		return g.multiRead()
	case 10:
		return Request{Op: wire.OpSync, Path: g.ownPath()}
	case 11:
		return Request{Op: wire.OpPing}
	case 12:
		return Request{Op: wire.OpWhoAmI}
	case 13:
		return Request{Op: wire.OpGetEphemerals, Path: pick(g, []string{"", "/", "~", "~/a", "~/b/", "~/a/a"}), NullPath: g.one(5)}
	case 14:
		return Request{Op: wire.OpGetAllChildrenNumber, Path: g.ownPath(), NullPath: g.one(50)}
	case 15:
		return g.addWatch()
	case 16:
		return g.removeWatches()
	}
	return g.setWatches()
}

// rare makes one that a connection sends once, or that ends it.
func (g *generator) rare() Request {
	switch g.weighted(10, 3, 2, 2, 2) {
	case 0:
		// Every digest is an identity.
		return Request{Op: wire.OpAuth, Scheme: "digest", Data: []byte(pick(g, credentials)), Xid: -4 * g.Int32N(2)}
	case 1:
		scheme := pick(g, []string{"ip", "ip", "world", "auth", "foo", "", "x509", "sasl", "super"})
		return Request{Op: wire.OpAuth, Scheme: scheme, Data: g.data()}
	case 2:
		return Request{Op: wire.OpSASL, Data: pick(g, [][]byte{[]byte("token"), {}})}
	case 3:
		return Request{Op: wire.OpReconfig}
	}
	return Request{Op: pick(g, []wire.Op{10, 23, 50, 99, 108, 200, 999, -3, -12, 1 << 30})}
}

func (g *generator) create() Request {
	if g.one(200) { // nothing else is wrong with it: which fault is found first is no rule
		return Request{Op: pick(g, []wire.Op{wire.OpCreate, wire.OpCreate2}), NullPath: true, ACL: znode.OpenACL}
	}
	q := Request{Path: g.path(), Data: g.data(), ACL: g.acl()}
	switch g.weighted(10, 9, 3, 4) {
	case 0:
		q.Op = wire.OpCreate
	case 1:
		q.Op = wire.OpCreate2
	case 2:
		q.Op = wire.OpCreateContainer
		q.Flags = pick(g, []int32{4, 4, 4, 0, 1, 2, 3, 5, 9})
		return q
	case 3:
		q.Op = wire.OpCreateTTL
		q.Flags = pick(g, []int32{5, 5, 5, 6, 6, 0, 1, 4, 7, -1})
		q.TTL = pick(g, []int64{1, 1000, 1 << 39, 1<<40 - 1, 1 << 40, 0, -1, -1 << 63})
		if q.Flags < 5 && q.TTL < 0 {
			q.TTL = 0 // ends the process of 3.8: see ttl-of-none
		}
		return q
	}
	q.Flags = pick(g, []int32{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 5, 6, 7, -1, 100})
	return q
}

// The three kinds of watch that a session uses on a path: always the same, because what a
// second kind does to the first is a deliberate difference (watch-modes).
const (
	watchesOnce = iota
	watchesPersistent
	watchesRecursive
)

func (g *generator) watchKind(path string) int {
	switch (hash(path) + 7*g.session) % 6 {
	case 0, 5:
		return watchesPersistent
	case 1:
		return watchesRecursive
	}
	return watchesOnce
}

func hash(path string) int {
	h := 0
	for _, c := range []byte(path) {
		h = (31*h + int(c)) % 1009
	}
	return h
}

// mayWatch keeps others away from half of the paths, on which their session can ask
// checkWatches (check-watches).
func (g *generator) mayWatch(path string) bool {
	owner := hash(path) % (2 * sessions)
	return !isOutside(path) && (owner >= sessions || owner == g.session)
}

func (g *generator) ownsWatches(path string) bool { return hash(path)%(2*sessions) == g.session }

func (g *generator) read(op wire.Op) Request {
	q := Request{Op: op, Path: g.readPath(), NullPath: g.one(100)}
	// The root and what all plays share is not watched: others change it.
	q.Watch = g.one(2) && g.watchKind(q.Path) == watchesOnce && g.mayWatch(q.Path)
	return q
}

func (g *generator) addWatch() Request {
	for {
		q := Request{Op: wire.OpAddWatch, Path: g.watchedPath()}
		switch g.watchKind(q.Path) {
		case watchesOnce:
			continue
		case watchesRecursive:
			q.Mode = 1
		}
		if g.one(10) {
			q.Mode = pick(g, []int32{2, -1, 7})
		}
		return q
	}
}

func (g *generator) removeWatches() Request {
	q := Request{Op: wire.OpRemoveWatches, Path: g.watchedPath(), Mode: 3}
	if g.ownsWatches(q.Path) && g.one(2) {
		q.Op = wire.OpCheckWatches
	}
	if g.watchKind(q.Path) == watchesOnce {
		q.Mode = 1 + g.Int32N(3)
	}
	if g.one(8) {
		q.Mode = pick(g, []int32{0, 6, -1, 99})
	}
	return q
}

func (g *generator) setWatches() Request {
	q := Request{Op: pick(g, []wire.Op{wire.OpSetWatches, wire.OpSetWatches2}), Since: g.moment()}
	for i := range q.Watches {
		q.Watches[i] = []string{}
		for range g.IntN(4) {
			path := g.watchedPath()
			if kind := g.watchKind(path); max(0, i-2) == kind {
				q.Watches[i] = append(q.Watches[i], path)
			}
		}
	}
	if g.one(20) { // alone: 3.8.0 first tells what the lists before it find (set-watches-null)
		q.Watches = [5][]string{{}, {}, {}, {}, {}}
		q.Watches[g.IntN(3)] = nil
	}
	if g.one(3) {
		q.Xid = -8
	}
	return q
}

func (g *generator) multi() Request {
	q := Request{Op: wire.OpMulti}
	for range g.IntN(6) {
		var s Request
		switch g.weighted(10, 4, 5, 3) {
		case 0:
			s = g.create()
			s.suitMulti()
		case 1:
			s = Request{Op: wire.OpDelete, Path: g.path(), Version: g.version()}
		case 2:
			s = Request{Op: wire.OpSetData, Path: g.path(), Data: g.data(), Version: g.version()}
		case 3:
			s = Request{Op: wire.OpCheck, Path: g.path(), Version: g.version()}
		}
		q.Sub = append(q.Sub, s)
	}
	if g.one(60) {
		q.Sub = append(q.Sub, pick(g, []Request{{Op: wire.OpGetData, Path: "~"}, {Op: wire.OpSetACL, Path: "~/a", ACL: g.acl()}, {Op: 50}, {Op: wire.OpMulti}}))
	}
	return q
}

// suitMulti keeps a create away from flags that make something else in 3.8.0 (multi-kinds).
func (q *Request) suitMulti() {
	switch {
	case q.Op == wire.OpCreateContainer && q.Flags >= 0 && q.Flags <= 6:
		q.Flags = 4
	case q.Op == wire.OpCreateTTL && q.Flags >= 0 && q.Flags < 5:
		q.Flags = 5
	case q.Op != wire.OpCreateTTL && (q.Flags == 5 || q.Flags == 6):
		q.Flags = 0
	}
}

func (g *generator) multiRead() Request {
	q := Request{Op: wire.OpMultiRead}
	for range g.IntN(5) {
		s := Request{Op: pick(g, []wire.Op{wire.OpGetData, wire.OpGetChildren}), Path: g.ownPath(), Watch: g.one(2)}
		q.Sub = append(q.Sub, s)
	}
	if g.one(30) {
		q.Sub = append(q.Sub, Request{Op: wire.OpExists, Path: "~"})
	}
	return q
}
