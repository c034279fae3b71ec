package tests

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/tenure-dev/tenure/client"
	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/znode"
)

// endOfHistory is when an operation ends whose outcome nobody saw.
const endOfHistory = math.MaxInt64

// Goal: what concurrent clients see is what one client after the other could have seen,
// each write applied once, although connections break at every moment and the member is
// killed. Stale reads never go back for one session. Method: record a history of several
// clients behind a proxy that loses replies and requests, cuts, delays and resets; every
// second seed also kills the member; porcupine then looks for an order. TENURE_SEEDS (6)
// histories.
func TestLinearizability(t *testing.T) {
	seed := randomSeed(t)
	for i := range environmentNumber(t, "TENURE_SEEDS", 6) {
		t.Run(fmt.Sprint(i), func(t *testing.T) { checkLinearizable(t, seed+i, i%2 == 1) })
	}
}

func checkLinearizable(t *testing.T, seed uint64, kill bool) {
	m := newMember(t)
	p := newProxy(t, seed, m.dial)
	h := newHistory(t, m.connect(client.Options{}))
	p.setFaulty(true)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var clients []*client.Client
	for range 5 {
		clients = append(clients, m.connect(client.Options{Dial: p.dial}))
	}
	work := h.start(ctx, seed, clients, 150)
	if kill {
		rng := rand.New(rand.NewPCG(seed, 100))
		for range 3 {
			<-time.After(50*time.Millisecond + upTo(rng, 300*time.Millisecond))
			m.crash()
			m.start()
		}
	}
	work.Wait()
	t.Logf("faults %v", p.faults())
	h.mustBeLinearizable()
}

// history is what several clients did.
type history struct {
	t       *testing.T
	began   time.Time
	sources atomic.Int64 // porcupine's clients
	unknown atomic.Int64
	mu      struct {
		sync.Mutex
		operations []porcupine.Operation
	}
}

func (h *history) now() int64 { return int64(time.Since(h.began)) }

// newHistory begins a history with what must exist.
func newHistory(t *testing.T, c *client.Client) *history {
	h := &history{t: t, began: time.Now()}
	h.prepare(c)
	return h
}

// start lets two sources on each client do n operations each, or as many as there is time
// for.
func (h *history) start(ctx context.Context, seed uint64, clients []*client.Client, n int) *sync.WaitGroup {
	work := new(sync.WaitGroup)
	for i := range 2 * len(clients) {
		s := h.source(nativeTree{h.t, clients[i/2]}, seed, uint64(i))
		work.Go(func() { s.work(ctx, n) })
	}
	return work
}

// mustBeLinearizable judges the history when all work has ended, and draws it otherwise.
func (h *history) mustBeLinearizable() {
	h.t.Logf("%d operations, %d of unknown outcome", len(h.mu.operations), h.unknown.Load())
	judge(h.t, h.mu.operations)
}

// judge wants operations to be linearizable, and draws them otherwise.
func judge(t *testing.T, operations []porcupine.Operation) {
	t.Helper()
	result, info := porcupine.CheckOperationsVerbose(treeModel, operations, time.Minute)
	if result == porcupine.Ok {
		return
	}
	t.Errorf("porcupine: %s", result)
	page, err := os.CreateTemp("", "tenure-history-*.html")
	if err == nil {
		err = errors.Join(porcupine.Visualize(treeModel, info, page), page.Close())
		t.Logf("the history is drawn in %s (%v)", page.Name(), err)
	}
}

// prepare makes what exists when the history begins, as its first operations.
func (h *history) prepare(c *client.Client) {
	s := h.source(nativeTree{h.t, c}, 0, 0)
	for _, path := range []string{treeSequence, treePair + "-b"} {
		if _, _, err := c.Create(h.t.Context(), path, []byte("0"), client.CreateOptions{}); err != nil {
			h.t.Fatal(err)
		}
	}
	for _, key := range append(registers(), treePair) {
		s.record(h.t.Context(), treeInput{op: treeCreate, key: key, value: "0"})
	}
}

// registers are the znodes that always exist; others come and go.
func registers() []string { return []string{"/r0", "/r1"} }

// treeClient is a client of some door as a history sees it.
type treeClient interface {
	// call does an operation and returns the mzxid that it has shown, if any. A znode.Error
	// is an answer; client.ErrUnknown says that it may be applied, or may be later; any
	// other error that it was not and will not be.
	call(ctx context.Context, in treeInput) (out treeOutput, mzxid int64, err error)
	// readOld reads without the promise to see what others have done, and tells the mzxid.
	readOld(ctx context.Context, key string) (mzxid int64, err error)
	// session is the session that zxids must not go back in.
	session() session.ID
	// exact says that the session never ends and every operation is answered in the end.
	exact() bool
}

// historySource does one operation after the other.
type historySource struct {
	h      *history
	c      treeClient
	rng    *rand.Rand
	pause  time.Duration    // the longest between operations
	id     int              // porcupine's client
	of     session.ID       // the session of newest
	newest map[string]int64 // highest mzxid seen of each register
}

func (h *history) source(c treeClient, seed, i uint64) *historySource {
	return &historySource{h: h, c: c, rng: rand.New(rand.NewPCG(seed, i))}
}

// work does n random operations, each with a value of its own.
func (s *historySource) work(ctx context.Context, n int) {
	s.id = int(s.h.sources.Add(1))
	versions := map[string]int32{}
	for i := 0; i < n && ctx.Err() == nil; i++ {
		pauseUpTo(s.rng, s.pause)
		in := treeInput{op: treeOp(s.rng.IntN(int(treeDelete) + 1)), version: -1, value: fmt.Sprint(s.rng.Uint32())}
		switch s.rng.IntN(8) {
		case 0, 1:
			in.key, in.op = registers()[s.rng.IntN(2)], in.op%2
		case 2:
			in.key = registers()[s.rng.IntN(2)]
			s.readOld(ctx, in.key)
			continue
		case 3, 4, 5:
			in.key = fmt.Sprintf("/n%d", s.rng.IntN(3))
		case 6:
			in.key, in.op = treeSequence, []treeOp{treeCreate, treeCount}[s.rng.IntN(2)]
		default:
			in.key, in.op = treePair, []treeOp{treeSet, treeGetFirst, treeGetSecond}[s.rng.IntN(3)]
		}
		if version, ok := versions[in.key]; ok && s.rng.IntN(2) == 0 {
			in.version = version // of what was seen last: an increment
		}
		limit := time.Minute
		if s.rng.IntN(25) == 0 {
			limit = upTo(s.rng, 30*time.Millisecond) // gives up, so that the outcome may stay unknown
		}
		callCtx, cancel := context.WithTimeout(ctx, limit)
		out := s.record(callCtx, in)
		cancel()
		if out.code == znode.OK && !out.unknown {
			versions[in.key] = out.version
		}
	}
}

// record does an operation and notes it.
func (s *historySource) record(ctx context.Context, in treeInput) treeOutput {
	h := s.h
	op := porcupine.Operation{ClientId: s.id, Input: in, Call: h.now()}
	of := s.c.session()
	out, mzxid, err := s.c.call(ctx, in)
	op.Return = h.now()
	var refused znode.Error
	switch {
	case err == nil:
		s.seen(of, in.key, mzxid)
	case errors.As(err, &refused):
		out = treeOutput{code: refused}
	case errors.Is(err, client.ErrUnknown):
		out, op.Return = treeOutput{unknown: true}, endOfHistory
		h.unknown.Add(1)
		s.id = int(h.sources.Add(1)) // the operation goes on, beside the next ones
	case s.c.exact() && ctx.Err() == nil:
		h.t.Errorf("%+v: %v", in, err)
		return treeOutput{unknown: true}
	default:
		return treeOutput{unknown: true} // was not sent or only read: nothing happened
	}
	op.Output = out
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.operations = append(h.mu.operations, op)
	return out
}

// readOld reads without the promise to see what others have done.
func (s *historySource) readOld(ctx context.Context, key string) {
	of := s.c.session()
	mzxid, err := s.c.readOld(ctx, key)
	if err != nil {
		return
	}
	if of == s.of && of == s.c.session() && mzxid < s.newest[key] {
		s.h.t.Errorf("session %v: a read of %s gave zxid 0x%x, before it had seen 0x%x", of, key, mzxid, s.newest[key])
	}
	s.seen(of, key, mzxid)
}

// seen notes what was shown in a session that may have ended meanwhile.
func (s *historySource) seen(of session.ID, key string, mzxid int64) {
	if of != s.of {
		s.of, s.newest = of, map[string]int64{}
	}
	if of == s.c.session() {
		s.newest[key] = max(s.newest[key], mzxid)
	}
}

// nativeTree is a treeClient of the websocket door.
type nativeTree struct {
	t *testing.T
	c *client.Client
}

func (n nativeTree) session() session.ID { return n.c.Session().ID() }
func (n nativeTree) exact() bool         { return true }

func (n nativeTree) call(ctx context.Context, in treeInput) (out treeOutput, mzxid int64, err error) {
	var stat znode.Stat
	var data []byte
	switch {
	case in.key == treeSequence && in.op == treeCreate:
		var path string
		path, _, err = n.c.Create(ctx, in.key+"/", nil, client.CreateOptions{Mode: znode.Mode{Sequential: true}})
		if err == nil {
			_, err = fmt.Sscanf(path, treeSequence+"/%d", &out.number)
		}
		return out, 0, err
	case in.key == treeSequence:
		stat, _, err = n.c.Exists(ctx, in.key, client.ReadOptions{})
		return treeOutput{number: int(stat.NumChildren)}, 0, err
	case in.key == treePair && in.op == treeSet:
		return n.setPair(ctx, in)
	case in.op == treeSet:
		stat, err = n.c.Set(ctx, in.key, []byte(in.value), in.version)
	case in.op == treeCreate:
		_, stat, err = n.c.Create(ctx, in.key, []byte(in.value), client.CreateOptions{})
	case in.op == treeDelete:
		return treeOutput{}, 0, n.c.Delete(ctx, in.key, in.version)
	case in.op == treeGetSecond:
		data, stat, err = n.c.Get(ctx, in.key+"-b", client.ReadOptions{})
	default:
		data, stat, err = n.c.Get(ctx, in.key, client.ReadOptions{})
	}
	return treeOutput{value: string(data), version: stat.Version}, stat.Mzxid, err
}

// setPair sets two znodes of equal versions, which must stay equal.
func (n nativeTree) setPair(ctx context.Context, in treeInput) (treeOutput, int64, error) {
	results, err := n.c.Multi(ctx,
		&znode.SetData{Path: treePair, Data: []byte(in.value), Version: in.version},
		&znode.SetData{Path: treePair + "-b", Data: []byte(in.value), Version: in.version})
	if err != nil {
		return treeOutput{}, 0, err
	}
	if a, b := results[0].Stat, results[1].Stat; a.Version != b.Version || a.Mzxid != b.Mzxid {
		n.t.Errorf("one transaction set %+v and %+v", a, b)
	}
	return treeOutput{version: results[0].Stat.Version}, results[0].Stat.Mzxid, nil
}

func (n nativeTree) readOld(ctx context.Context, key string) (int64, error) {
	_, stat, err := n.c.Get(ctx, key, client.ReadOptions{Stale: true})
	return stat.Mzxid, err
}
