// Package server is one member as its clients see it: doors, connections, sessions
// and their expiry, reads, limits, and HTTP for operators. What it agrees on with the
// other members it hands to package replica; what comes out of the log it applies to
// package store, and tells whom it concerns.
//
// # Who may touch what
//
// Apply (one goroutine, the replica's) is the only writer of the state. It holds the
// state lock exclusively while it makes a batch visible, tells the watchers and
// answers: one step that no reader can straddle. A read holds it shared from its look
// at the state until its answer is in the outbox. So each connection's outbox has the
// events of a change before any answer that shows it, and never older state behind
// newer. Locks nest in the order state, watches, connection.
package server

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/gorilla/websocket"
	"golang.org/x/sync/errgroup"

	"github.com/tenure-dev/tenure/replica"
	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/store"
	"github.com/tenure-dev/tenure/watch"
)

// Server is one running member. Its methods are safe for concurrent use.
type Server struct {
	cfg Config
	log *slog.Logger
	// clock is monotonic, in nanoseconds, wall in milliseconds since 1970; only a simulation
	// has others than the process's.
	clock, wall func() int64
	// spawn lets the worker of a connection run.
	spawn   func(*conn)
	origin  atomic.Uint64 // see wire.Proposal; Install draws another
	token   adminToken
	store   *store.Store
	rep     *replica.Replica
	metrics *metrics
	traffic traffic
	// traceMask is what stmk set; nothing depends on it.
	traceMask atomic.Int64

	state        sync.RWMutex // see the package comment
	published    int64        // zxid of the newest change that was told; apply only
	kicked       map[*conn]struct{}
	applyScratch []applied // apply only
	excesses     excessLog
	applying     atomic.Int64 // when apply began with an entry, 0 while it has none

	pending     pendingCalls
	sessions    *liveSessions
	watches     watches
	outstanding *budget
	outboxBytes atomic.Int64 // in all outboxes
	nativeTerms terms
	zkTerms     terms
	diskFull    atomic.Bool
	reports     reports

	listener net.Listener
	zk       net.Listener // ZooKeeper's protocol; nil if not served
	zkTLS    net.Listener // the same above TLS
	peers    net.Listener // the other members; nil if there can be none
	ensemble
	http     *http.Server
	upgrader websocket.Upgrader
	conns    connTable
	lastConn atomic.Uint64
	serving  atomic.Bool // until the member stops
	led      atomic.Bool // a leader answers, so clients are served
	// learnPresence asks apply to let the store learn which znodes there are.
	learnPresence atomic.Bool

	failure   atomic.Pointer[error]
	failed    chan struct{}
	stop      context.CancelFunc
	running   context.Context // ends when the member stops
	tasks     *errgroup.Group
	closeOnce sync.Once
	closeErr  error
}

// Open opens the member's data directory, begins to recover its state from the log, and
// listens. Clients are refused until Serving is closed; a member that can have no others has
// closed it when Open returns. HTTP for operators answers at once. The caller must Shutdown.
func Open(cfg Config, log *slog.Logger) (*Server, error) {
	return openOn(cfg, log, disk(cfg.DataDir))
}

// openOn is Open with the databases on fs.
func openOn(cfg Config, log *slog.Logger, fs vfs.FS) (*Server, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := newServer(cfg, log)
	if err := s.open(fs); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// newServer returns a member that is not open. cfg is valid.
func newServer(cfg Config, log *slog.Logger) *Server {
	began := time.Now()
	s := &Server{cfg: cfg, log: log,
		clock: func() int64 { return int64(time.Since(began)) }, wall: func() int64 { return time.Now().UnixMilli() },
		spawn:    func(c *conn) { go c.work() },
		sessions: newLiveSessions(), kicked: map[*conn]struct{}{}, failed: make(chan struct{}),
		ensemble: ensemble{served: make(chan struct{})}}
	s.origin.Store(randomOrigin())
	s.pending.mu.calls = map[uint64]*call{}
	s.watches.cfg, s.watches.registry, s.watches.conns = &s.cfg, watch.NewRegistry(), map[watch.Watcher]*conn{}
	s.outstanding = newBudget(int64(cfg.MaxOutstandingTotal), cfg.MaxOutstandingBytes)
	s.nativeTerms, s.zkTerms = nativeTerms(&cfg), zkTerms(&cfg)
	s.conns.open = map[*conn]struct{}{}
	s.conns.perIP = map[string]int{}
	s.traceMask.Store(traceMaskDefault)
	s.metrics = newMetrics(Build(), s.figures)
	return s
}

// listen opens the doors: nobody is let in yet.
func (s *Server) listen() error {
	doors := []struct {
		key, addr string
		secure    bool
		ln        *net.Listener
	}{
		{"listen", s.cfg.Listen, s.cfg.TLS.CertFile != "", &s.listener},
		{"zk-listen", s.cfg.ZKListen, false, &s.zk},
		{"zk-tls-listen", s.cfg.ZKTLSListen, true, &s.zkTLS},
		{"peer-listen", s.cfg.PeerListen, false, &s.peers}, // secured by the transport
	}
	for _, d := range doors {
		if d.addr == "" || d.addr == addressNone {
			continue
		}
		ln, err := net.Listen("tcp", d.addr)
		if err != nil {
			return fmt.Errorf("%s %s: %w", d.key, d.addr, err)
		}
		if d.secure {
			secured, err := secureListener(ln, &s.cfg, s.log)
			if err != nil {
				ln.Close()
				return err
			}
			ln = secured
		}
		if *d.ln = ln; d.ln != &s.peers {
			*d.ln = gatherListener{ln, s}
		}
	}
	return nil
}

// randomOrigin draws the number that tells this process's proposals from those of
// others and of itself before a restart.
func randomOrigin() uint64 {
	var b [8]byte
	rand.Read(b[:])
	return binary.BigEndian.Uint64(b[:]) | 1
}

// open does what can fail, in the order of what needs what.
func (s *Server) open(fs vfs.FS) (err error) {
	if err := os.MkdirAll(s.cfg.DataDir, 0o700); err != nil {
		return fmt.Errorf("data-dir: %w", err)
	}
	// The ports first: a second process on them should not touch the data.
	if err := s.listen(); err != nil {
		return err
	}
	if s.token, err = openAdminToken(s.cfg.DataDir); err != nil {
		return err
	}
	if err := s.openStore(fs); err != nil {
		return err
	}
	s.rep, err = replica.Open(filepath.Join(s.cfg.DataDir, logDir), s.replicaOptions(fs))
	if errors.Is(err, replica.ErrNoNetwork) {
		return fmt.Errorf("peer-listen = %q: must be the address at which the other members of the ensemble reach this one: %w", s.cfg.PeerListen, err)
	}
	if err != nil {
		return err
	}
	s.compareWithLog()
	if s.network != nil {
		s.network.Serve(s.rep)
	} else if err := s.barrier(context.Background()); err != nil {
		return err
	}
	s.start()
	return nil
}

// openStore opens the state as it was when the member last made it durable.
func (s *Server) openStore(fs vfs.FS) (err error) {
	s.store, err = store.Open(filepath.Join(s.cfg.DataDir, stateDir), store.Options{FS: fs, Log: s.log, CacheBytes: s.cfg.CacheBytes,
		HistoryCount: s.cfg.HistoryCount, HistoryBytes: s.cfg.HistoryBytes, HistoryAge: s.cfg.HistoryAge})
	if err != nil {
		return err
	}
	s.published = s.store.LastZxid()
	return s.loadSessions()
}

// replicaOptions are what the member asks of its replica.
func (s *Server) replicaOptions(fs vfs.FS) replica.Options {
	o := replica.Options{
		ID: uint64(s.cfg.MemberID), Cluster: s.cfg.Cluster(), Members: s.founders(), Join: s.cfg.Join, Origin: s.origin.Load(), FS: fs, Log: s.log, Machine: s,
		Tick: s.cfg.ElectionTimeout / ticksPerElection, Seal: s.seal, Failed: s.fail, RoleChanged: s.roleChanged, Observe: replica.Observe{
			Sync: func(d time.Duration, _ int) {
				s.metrics.synced(int64(d))
				s.syncTimes.observe(s.now(), int64(d))
			},
			Seal: func(proposals, _ int) { s.metrics.proposed(proposals) },
		}}
	o.LagBytes, o.SnapshotRate = s.cfg.LogKeepBytes, s.cfg.SnapshotRate
	if s.peers != nil {
		o.Connect, o.Serve = s.connect, s.serveCall
		o.Ask, o.Asked, o.Answered = s.appendQuestion, s.takeQuestion, s.takeAnswer
	}
	return o
}

// ticksPerElection is how many ticks of Raft's clock an election timeout has.
const ticksPerElection = 10

// Directories below DataDir.
const (
	stateDir = "state"
	logDir   = "log"
)

// loadSessions makes the sessions of the stored state live; those that the log opens
// or closes behind it follow as it is applied.
func (s *Server) loadSessions() error {
	const page = 10_000
	for after := session.ID(0); ; {
		list := s.store.Sessions(after, page)
		for i := range list {
			s.sessions.bound(&list[i], s.now())
			after = list[i].ID
		}
		if len(list) < page {
			return nil
		}
	}
}

// start lets the member serve.
func (s *Server) start() {
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.tasks, ctx = errgroup.WithContext(ctx)
	s.running = ctx
	s.upgrader = websocket.Upgrader{
		HandshakeTimeout: s.cfg.HandshakeTimeout,
		ReadBufferSize:   wsReadBuffer,
		WriteBufferPool:  &wsWriteBuffers,
		Subprotocols:     []string{subprotocolJute, subprotocolJSON},
		// The handler is behind the origin policy already.
		CheckOrigin: func(*http.Request) bool { return true },
	}
	a := &admin{backend: s, token: s.token, log: s.log, writeTimeout: s.cfg.WriteTimeout}
	a.zooKeeper, a.status = (&zkAdmin{s: s, admin: a}).handle, s.serveStatus
	s.http = newHTTPServer(a.httpHandler(&s.cfg, s.metrics, http.HandlerFunc(s.upgrade)), &s.cfg, s.log)
	s.http.ConnContext = withConn
	s.serving.Store(true)
	if s.network == nil { // it has no rival, and caught up
		s.led.Store(true)
		s.beginServing()
	} else {
		s.tasks.Go(func() error { s.followLeader(ctx); return nil })
		s.tasks.Go(func() error { s.keepConfig(ctx); return nil })
		s.tasks.Go(func() error { s.watchMembers(ctx); return nil })
	}
	s.tasks.Go(func() error { s.expire(ctx); return nil })
	s.tasks.Go(func() error { s.reap(ctx); return nil })
	s.tasks.Go(func() error { s.keepAlive(ctx); return nil })
	for _, l := range []net.Listener{s.zk, s.zkTLS} {
		if l != nil {
			s.tasks.Go(func() error { s.serveZooKeeper(l); return nil })
		}
	}
	s.tasks.Go(func() error {
		if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
			s.fail(fmt.Errorf("listen %s: %w", s.cfg.Listen, err))
		}
		return nil
	})
}

// Addr is the address of websocket and HTTP, with the port that was picked.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// ZKAddr is the address of ZooKeeper's protocol, nil if it is not served there.
func (s *Server) ZKAddr() net.Addr { return addrOf(s.zk) }

// ZKTLSAddr is the address of ZooKeeper's protocol above TLS, nil if there is none.
func (s *Server) ZKTLSAddr() net.Addr { return addrOf(s.zkTLS) }

// PeerAddr is the address for the other members, nil if there can be none.
func (s *Server) PeerAddr() net.Addr { return addrOf(s.peers) }

func addrOf(l net.Listener) net.Addr {
	if l == nil {
		return nil
	}
	return l.Addr()
}

// Failed is closed when the member can no longer work (a failed disk). Err says why.
func (s *Server) Failed() <-chan struct{} { return s.failed }

// Err is what made the member fail, nil while it works.
func (s *Server) Err() error { return s.healthy() }

// fail stops the member from acknowledging anything more. The first cause is kept.
func (s *Server) fail(err error) {
	if s.failure.CompareAndSwap(nil, &err) {
		s.log.Error("the member failed and stops", "err", err)
		close(s.failed)
	}
}

// now is the time of the member's own clock in nanoseconds: monotonic, from its start.
func (s *Server) now() int64 { return s.clock() }

// wallMs is the wall clock: for the stamps of entries, and for what is old by them.
func (s *Server) wallMs() int64 { return s.wall() }

// Shutdown stops in order: no new connections, clients are told to come back, what is
// in the log's queue is finished, state is flushed. It returns when nothing runs any
// more; ctx bounds how long clients are waited for.
func (s *Server) Shutdown(ctx context.Context) error {
	s.serving.Store(false)
	s.closeOnce.Do(func() {
		s.log.Info("stopping")
		s.resign(ctx)
		s.conns.goAway(ctx)
		s.closeErr = s.close()
	})
	return s.closeErr
}

// close undoes open, as far as that came, in reverse order.
func (s *Server) close() error {
	var errs []error
	if s.http != nil {
		s.http.Close()
	} else if s.listener != nil {
		s.listener.Close()
	}
	for _, l := range []net.Listener{s.zk, s.zkTLS, s.peers} {
		if l != nil {
			l.Close()
		}
	}
	if s.network != nil {
		s.network.Close()
	}
	if s.stop != nil {
		s.stop()
		s.tasks.Wait()
	}
	if s.rep != nil {
		errs = append(errs, s.rep.Close())
	}
	if s.store != nil {
		errs = append(errs, s.store.Close())
	}
	return errors.Join(errs...)
}

var _ replica.Machine = (*Server)(nil)
