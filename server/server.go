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
	cfg     Config
	log     *slog.Logger
	began   time.Time
	origin  uint64 // see wire.Proposal
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

	listener net.Listener
	zk       net.Listener // ZooKeeper's protocol; nil if not served
	zkTLS    net.Listener // the same above TLS
	http     *http.Server
	upgrader websocket.Upgrader
	conns    connTable
	lastConn atomic.Uint64
	serving  atomic.Bool

	failure   atomic.Pointer[error]
	failed    chan struct{}
	stop      context.CancelFunc
	tasks     *errgroup.Group
	closeOnce sync.Once
	closeErr  error
}

// Open opens the member's data directory, recovers its state from the log and begins
// to listen; requests are served as soon as it returns. The caller must Shutdown.
func Open(cfg Config, log *slog.Logger) (*Server, error) {
	return openOn(cfg, log, vfs.Default)
}

// openOn is Open with the databases on fs.
func openOn(cfg Config, log *slog.Logger, fs vfs.FS) (*Server, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, log: log, began: time.Now(), origin: randomOrigin(),
		sessions: newLiveSessions(), kicked: map[*conn]struct{}{}, failed: make(chan struct{})}
	s.pending.mu.calls = map[uint64]*call{}
	s.watches.cfg, s.watches.registry, s.watches.conns = &s.cfg, watch.NewRegistry(), map[watch.Watcher]*conn{}
	s.outstanding = newBudget(int64(cfg.MaxOutstandingTotal), cfg.MaxOutstandingBytes)
	s.nativeTerms, s.zkTerms = nativeTerms(&cfg), zkTerms(&cfg)
	s.conns.open = map[*conn]struct{}{}
	s.conns.perIP = map[string]int{}
	s.traceMask.Store(traceMaskDefault)
	s.metrics = newMetrics(Build(), s.figures)
	if err := s.open(fs); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
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
		*d.ln = gatherListener{ln, s}
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
	s.store, err = store.Open(filepath.Join(s.cfg.DataDir, stateDir), store.Options{FS: fs, Log: s.log, CacheBytes: s.cfg.CacheBytes,
		HistoryCount: s.cfg.HistoryCount, HistoryBytes: s.cfg.HistoryBytes, HistoryAge: s.cfg.HistoryAge})
	if err != nil {
		return err
	}
	s.published = s.store.LastZxid()
	if err := s.loadSessions(); err != nil {
		return err
	}
	s.rep, err = replica.Open(filepath.Join(s.cfg.DataDir, logDir), replica.Options{ID: 1, FS: fs, Log: s.log, Machine: s,
		Seal: s.seal, Failed: s.fail, Observe: replica.Observe{
			Sync: func(d time.Duration, _ int) { s.metrics.synced(int64(d)) },
			Seal: func(proposals, _ int) { s.metrics.proposed(proposals) },
		}})
	if err != nil {
		return err
	}
	if err := s.caughtUp(); err != nil {
		return err
	}
	s.store.LearnPresence()
	s.sessions.reset(s.now())
	s.start()
	return nil
}

// Directories below DataDir.
const (
	stateDir = "state"
	logDir   = "log"
)

// caughtUp waits until everything that was ever acknowledged is applied.
func (s *Server) caughtUp() error {
	done := make(chan error, 1)
	s.rep.Barrier(func(err error) { done <- err })
	select {
	case err := <-done:
		return err
	case <-s.failed:
		return s.healthy()
	}
}

// loadSessions makes the sessions of the stored state live; those that the log opens
// or closes behind it follow as it is applied.
func (s *Server) loadSessions() error {
	const page = 10_000
	for after := session.ID(0); ; {
		list := s.store.Sessions(after, page)
		for i := range list {
			s.sessions.opened(&list[i], s.now())
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
	s.upgrader = websocket.Upgrader{
		HandshakeTimeout: s.cfg.HandshakeTimeout,
		ReadBufferSize:   wsReadBuffer,
		WriteBufferPool:  &wsWriteBuffers,
		Subprotocols:     []string{subprotocolJute, subprotocolJSON},
		// The handler is behind the origin policy already.
		CheckOrigin: func(*http.Request) bool { return true },
	}
	a := &admin{backend: s, token: s.token, log: s.log, writeTimeout: s.cfg.WriteTimeout}
	a.zooKeeper = (&zkAdmin{s: s, admin: a}).handle
	s.http = newHTTPServer(a.httpHandler(&s.cfg, s.metrics, http.HandlerFunc(s.upgrade)), &s.cfg, s.log)
	s.http.ConnContext = withConn
	s.serving.Store(true)
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
func (s *Server) now() int64 { return int64(time.Since(s.began)) }

// wallMs is the wall clock, only ever used as the stamp of an entry.
func (s *Server) wallMs() int64 { return time.Now().UnixMilli() }

// Shutdown stops in order: no new connections, clients are told to come back, what is
// in the log's queue is finished, state is flushed. It returns when nothing runs any
// more, or ctx's error if that comes first for the clients' part.
func (s *Server) Shutdown(ctx context.Context) error {
	s.serving.Store(false)
	s.closeOnce.Do(func() {
		s.log.Info("stopping")
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
	for _, l := range []net.Listener{s.zk, s.zkTLS} {
		if l != nil {
			l.Close()
		}
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
