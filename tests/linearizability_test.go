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
	h := &history{t: t, began: time.Now()}
	h.prepare(m.connect(client.Options{}))
	p.setFaulty(true)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for i := range uint64(10) {
		if i%2 == 0 {
			h.clients = append(h.clients, m.connect(client.Options{Dial: p.dial}))
		}
		s := &historySource{h: h, c: h.clients[i/2], rng: rand.New(rand.NewPCG(seed, i)), newest: map[string]int64{}}
		wg.Go(func() { s.work(ctx, 150) })
	}
	if kill {
		rng := rand.New(rand.NewPCG(seed, 100))
		for range 3 {
			<-time.After(50*time.Millisecond + upTo(rng, 300*time.Millisecond))
			m.crash()
			m.start()
		}
	}
	wg.Wait()
	t.Logf("%d operations, %d of unknown outcome, faults %v", len(h.mu.operations), h.unknown.Load(), p.faults())
	result, info := porcupine.CheckOperationsVerbose(treeModel, h.mu.operations, time.Minute)
	if result == porcupine.Ok {
		return
	}
	t.Errorf("porcupine: %s, seed %d", result, seed)
	page, err := os.CreateTemp("", "tenure-history-*.html")
	if err == nil {
		err = errors.Join(porcupine.Visualize(treeModel, info, page), page.Close())
		t.Logf("the history is drawn in %s (%v)", page.Name(), err)
	}
}

// history is what several clients did.
type history struct {
	t       *testing.T
	began   time.Time
	clients []*client.Client
	sources atomic.Int64 // porcupine's clients
	unknown atomic.Int64
	mu      struct {
		sync.Mutex
		operations []porcupine.Operation
	}
}

func (h *history) now() int64 { return int64(time.Since(h.began)) }

// prepare makes what exists when the history begins, as its first operations.
func (h *history) prepare(c *client.Client) {
	s := &historySource{h: h, c: c, newest: map[string]int64{}}
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

// historySource does one operation after the other.
type historySource struct {
	h      *history
	c      *client.Client
	rng    *rand.Rand
	id     int              // porcupine's client
	newest map[string]int64 // highest mzxid seen of each register
}

// work does n random operations, each with a value of its own.
func (s *historySource) work(ctx context.Context, n int) {
	s.id = int(s.h.sources.Add(1))
	versions := map[string]int32{}
	for range n {
		in := treeInput{op: treeOp(s.rng.IntN(int(treeDelete) + 1)), version: -1, value: fmt.Sprint(s.rng.Uint32())}
		switch s.rng.IntN(8) {
		case 0, 1:
			in.key, in.op = registers()[s.rng.IntN(2)], in.op%2
		case 2:
			in.key = registers()[s.rng.IntN(2)]
			s.readStale(ctx, in.key)
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
	out, err := s.call(ctx, in)
	op.Return = h.now()
	var refused *client.Error
	switch {
	case errors.As(err, &refused):
		out = treeOutput{code: refused.Code}
	case errors.Is(err, client.ErrUnknown):
		out, op.Return = treeOutput{unknown: true}, endOfHistory
		h.unknown.Add(1)
		s.id = int(h.sources.Add(1)) // the operation goes on, beside the next ones
	case err != nil && ctx.Err() == nil:
		h.t.Errorf("%+v: %v", in, err) // nothing else may fail: the session lives
		return treeOutput{unknown: true}
	case err != nil:
		return treeOutput{unknown: true} // was not sent or only read: nothing happened
	}
	op.Output = out
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.operations = append(h.mu.operations, op)
	return out
}

// call does an operation.
func (s *historySource) call(ctx context.Context, in treeInput) (out treeOutput, err error) {
	var stat znode.Stat
	var data []byte
	switch {
	case in.key == treeSequence && in.op == treeCreate:
		var path string
		path, _, err = s.c.Create(ctx, in.key+"/", nil, client.CreateOptions{Mode: znode.Mode{Sequential: true}})
		if err == nil {
			_, err = fmt.Sscanf(path, treeSequence+"/%d", &out.number)
		}
		return out, err
	case in.key == treeSequence:
		stat, _, err = s.c.Exists(ctx, in.key, client.ReadOptions{})
		return treeOutput{number: int(stat.NumChildren)}, err
	case in.key == treePair && in.op == treeSet:
		return s.setPair(ctx, in)
	case in.op == treeSet:
		stat, err = s.c.Set(ctx, in.key, []byte(in.value), in.version)
	case in.op == treeCreate:
		_, stat, err = s.c.Create(ctx, in.key, []byte(in.value), client.CreateOptions{})
	case in.op == treeDelete:
		return treeOutput{}, s.c.Delete(ctx, in.key, in.version)
	case in.op == treeGetSecond:
		data, stat, err = s.c.Get(ctx, in.key+"-b", client.ReadOptions{})
	default:
		data, stat, err = s.c.Get(ctx, in.key, client.ReadOptions{})
	}
	if err == nil {
		s.seen(in.key, stat)
	}
	return treeOutput{value: string(data), version: stat.Version}, err
}

// setPair sets two znodes of equal versions, which must stay equal.
func (s *historySource) setPair(ctx context.Context, in treeInput) (treeOutput, error) {
	results, err := s.c.Multi(ctx,
		&znode.SetData{Path: treePair, Data: []byte(in.value), Version: in.version},
		&znode.SetData{Path: treePair + "-b", Data: []byte(in.value), Version: in.version})
	if err != nil {
		return treeOutput{}, err
	}
	if a, b := results[0].Stat, results[1].Stat; a.Version != b.Version || a.Mzxid != b.Mzxid {
		s.h.t.Errorf("one transaction set %+v and %+v", a, b)
	}
	return treeOutput{version: results[0].Stat.Version}, nil
}

// readStale reads without the promise to see what others have done.
func (s *historySource) readStale(ctx context.Context, key string) {
	_, stat, err := s.c.Get(ctx, key, client.ReadOptions{Stale: true})
	if err == nil && stat.Mzxid < s.newest[key] {
		s.h.t.Errorf("a stale read of %s gave zxid 0x%x, before the session had seen 0x%x", key, stat.Mzxid, s.newest[key])
	}
	if err == nil {
		s.seen(key, stat)
	}
}

func (s *historySource) seen(key string, stat znode.Stat) {
	s.newest[key] = max(s.newest[key], stat.Mzxid)
}
