package recipestest

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/znode"
)

// FakeOptions configures a Fake. The zero value of a field means its default.
type FakeOptions struct {
	// Exact chooses what is imitated. True is Tenure: reads are linearizable, renewals
	// are judged by the leader at their arrival, calls outlive a connection and are
	// applied once. False is ZooKeeper: members answer reads from what they have,
	// a member tells the leader late which sessions it heard of, and a lost connection
	// costs the calls in flight and the watches.
	Exact bool
	// Members is the size of the ensemble, default 1. Peers are on followers if there
	// are any. Peer.Lag and Move need two; Isolate needs three, to leave a majority.
	Members int
	// Timeout is the session timeout that clients ask for, default 10 s.
	Timeout time.Duration
	// TimeoutMax is the longest that is granted, default Timeout.
	TimeoutMax time.Duration
	// RTT is the round trip time between client and member, default 1 ms; negative is
	// none.
	RTT time.Duration
	// Jitter is the most that is randomly added to each direction, default none. Order
	// within a connection stays.
	Jitter time.Duration
	// Seed is the seed of what is random.
	Seed uint64
	// Reconnect is how long clients wait before they connect again, default 10 ms.
	Reconnect time.Duration
}

func (o FakeOptions) withDefaults() FakeOptions {
	setDefault(&o.Members, 1)
	setDefault(&o.Timeout, 10*time.Second)
	setDefault(&o.TimeoutMax, o.Timeout)
	setDefault(&o.RTT, time.Millisecond)
	setDefault(&o.Reconnect, 10*time.Millisecond)
	o.RTT = max(o.RTT, 0)
	return o
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// timeout is the one that is granted.
func (o FakeOptions) timeout() time.Duration { return min(o.Timeout, o.TimeoutMax) }

// tick is ZooKeeper's tickTime: sessions end at a multiple of it, followers report to the
// leader each half of it.
func (o FakeOptions) tick() time.Duration { return o.timeout() / 4 }

// Fake is an ensemble in memory with its clients: one leader, followers, sessions, a tree,
// watches, and faults to order. It has one zxid stream and the semantics of package
// znode. Time is what package time says, so in a synctest bubble it is fake; make the
// Fake in the bubble then. All that blocks does so on channels.
//
// Its goroutines end with its last client. A Fake is safe for concurrent use.
type Fake struct {
	o  FakeOptions
	mu sync.Mutex // guards all below, and the clients; held briefly, never while waiting
	loop
	rng      *rand.Rand
	members  []*member
	leader   *member // nil while there is none
	sessions map[session.ID]*serverSession
	history  []change // the newest, for watches of clients that come back
	forgot   int64    // changes up to this zxid are not in history
	clients  []*fakeClient
	next     int // of members, for the next client
}

// NewFake makes an ensemble.
func NewFake(o FakeOptions) *Fake {
	o = o.withDefaults()
	f := &Fake{
		o: o, rng: rand.New(rand.NewPCG(o.Seed, 0)),
		sessions: make(map[session.ID]*serverSession),
	}
	f.base = time.Now()
	for i := range o.Members {
		f.members = append(f.members, &member{
			f: f, index: i, tree: znode.NewTree(),
			watches: make(map[watchKey][]*fakeWatch), touched: make(map[session.ID]bool),
		})
	}
	f.leader = f.members[0]
	return f
}

// Connect makes a client. Its session is Connecting at first.
func (f *Fake) Connect() recipes.Store { return f.connect() }

func (f *Fake) connect() *fakeClient {
	f.retain()
	f.mu.Lock()
	defer f.mu.Unlock()
	home := f.members[0]
	if n := len(f.members); n > 1 {
		home = f.members[1+f.next%(n-1)]
		f.next++
	}
	c := &fakeClient{f: f, home: home, watches: make(map[*fakeWatch]bool)}
	f.clients = append(f.clients, c)
	c.begin(0)
	return c
}

// Open makes a client, waits until it is Connected and returns it with the verbs for its
// faults. It is closed with the test.
func (f *Fake) Open(t testing.TB) *Peer {
	t.Helper()
	c := f.connect()
	t.Cleanup(func() {
		c.unpause()
		if err := c.Close(); err != nil {
			t.Errorf("close a peer: %v", err)
		}
	})
	for s := range c.Session().States(t.Context()) {
		if s == recipes.Connected {
			return c.peer()
		}
	}
	t.Fatalf("no session was opened: %v", c.Session().Err())
	return nil
}

// FakeHarness returns a backend of tests whose Run gives each test a bubble with fake
// time and, at the first use, a Fake of its own. Tests are told apart by their names.
func FakeHarness(o FakeOptions) Harness {
	var mu sync.Mutex
	fakes := make(map[string]*Fake)
	o = o.withDefaults()
	of := func(t testing.TB) *Fake {
		mu.Lock()
		defer mu.Unlock()
		f := fakes[t.Name()]
		if f == nil {
			f = NewFake(o)
			fakes[t.Name()] = f
			t.Cleanup(func() {
				mu.Lock()
				defer mu.Unlock()
				delete(fakes, t.Name())
			})
		}
		return f
	}
	name := "fake-zookeeper"
	if o.Exact {
		name = "fake-tenure"
	}
	return Harness{
		Name: name, Timeout: o.timeout(), Fake: true, Run: synctest.Test,
		Open:       func(t testing.TB) *Peer { t.Helper(); return of(t).Open(t) },
		Restart:    func(t testing.TB, down time.Duration) { t.Helper(); of(t).Restart(down) },
		SetCounter: func(t testing.TB, path string, n int32) { t.Helper(); of(t).SetCounter(t, path, n) },
		Reap:       func(t testing.TB) { t.Helper(); of(t).Reap() },
	}
}

// Stats counts what clients did.
type Stats struct {
	Reads    int // judged by a member
	Writes   int // judged by the leader, refused ones too
	Renewals int // judged by the leader
	Events   int // of watches, delivered
	Connects int // connections on which a session was opened or resumed
}

func (s *Stats) add(o Stats) {
	s.Reads += o.Reads
	s.Writes += o.Writes
	s.Renewals += o.Renewals
	s.Events += o.Events
	s.Connects += o.Connects
}

// Stats returns the sum over all clients that there ever were.
func (f *Fake) Stats() (sum Stats) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.clients {
		sum.add(c.stats)
	}
	return sum
}

// StatsOf returns what one of f's own clients did, and nothing for any other Store.
func (f *Fake) StatsOf(s recipes.Store) Stats {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.clients {
		if recipes.Store(c) == s {
			return c.stats
		}
	}
	return Stats{}
}

// Watches returns how many watches clients wait for.
func (f *Fake) Watches() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.clients {
		n += len(c.watches)
	}
	return n
}

// Sessions returns the ids of the open sessions in the order of their opening.
func (f *Fake) Sessions() (ids []int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id := range f.sessions {
		ids = append(ids, int64(id))
	}
	slices.Sort(ids)
	return ids
}

// Nodes returns the paths that begin with prefix, as committed, sorted. ZooKeeper's own
// below /zookeeper are left out, and so is the root.
func (f *Fake) Nodes(prefix string) (paths []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.newest().tree.All(func(path string, n *znode.Node, _ znode.Children) bool {
		system := path == znode.Root || path == znode.SystemRoot || strings.HasPrefix(path, znode.SystemRoot+"/")
		if n != nil && !system && strings.HasPrefix(path, prefix) {
			paths = append(paths, path)
		}
		return true
	})
	slices.Sort(paths)
	return paths
}
