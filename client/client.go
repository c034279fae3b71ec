// Package client is the Go client of Tenure over websocket.
//
// A Client keeps one session alive over any number of connections to any of its
// endpoints. Writes are applied exactly once across reconnects; reads are
// linearizable unless asked to be stale; watches survive a reconnect with every
// event or say that there is a gap.
package client

import (
	"context"
	"crypto/tls"
	"errors"
	"iter"
	"log/slog"
	"net"
	"time"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// Options configures Connect. The zero value of a field means its default.
type Options struct {
	// Endpoints are tried in random order: "host:port", "ws://host:port" or
	// "wss://host:port". A path prefix behind the port ("ws://h:2180/app") is a chroot:
	// all paths given and returned are below it.
	Endpoints []string
	// Timeout is the session timeout to ask for, default 10 s. The granted one is
	// Session.Timeout.
	Timeout time.Duration
	TLS     *tls.Config
	Auth    []Auth // presented on each new connection, before anything else
	Log     *slog.Logger
	// Dial replaces net.Dialer.DialContext, for tests and proxies.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Window bounds the requests that may be outstanding at once, default 1024; more wait.
	Window int
}

// Auth is one identity to present: scheme "digest" with "user:password", or "token"
// with the server's admin token. It never appears in logs or errors.
type Auth struct{ Scheme, Secret string }

// Client is safe for concurrent use.
type Client struct{}

var (
	// ErrUnknown: the request was sent and its session ended before an answer came; it
	// may or may not have been applied. Never returned while the session can be resumed.
	ErrUnknown = errors.New("client: outcome unknown")
	ErrClosed  = errors.New("client: closed")
	// ErrUnavailable: certainly not applied: no server could be reached.
	ErrUnavailable = errors.New("client: no server reachable")
)

// Error is a definite answer of the server. errors.Is(err, znode.NoNode) and so on work.
type Error struct {
	Op   string // "create"
	Path string
	Code znode.Error
}

// Connect opens a session. It fails when ctx ends first; the error then wraps the
// last cause and names the address tried.
func Connect(ctx context.Context, o Options) (*Client, error) { panic("stub") }

// Close ends the session (its ephemerals go at once), waits for all goroutines and
// fails pending calls with ErrClosed. It takes 2 s at most. A second call is harmless.
func (c *Client) Close() error { panic("stub") }

// Detach closes the client without ending the session, which another Connect could
// resume until it expires.
func (c *Client) Detach() error { panic("stub") }

type CreateOptions struct {
	ACL  []znode.ACL // default znode.OpenACL
	Mode znode.Mode
	TTL  time.Duration
}

func (c *Client) Create(ctx context.Context, path string, data []byte, o CreateOptions) (string, znode.Stat, error) {
	panic("stub")
}

// version -1 = any, in all of these.
func (c *Client) Set(ctx context.Context, path string, data []byte, version int32) (znode.Stat, error) {
	panic("stub")
}
func (c *Client) Delete(ctx context.Context, path string, version int32) error { panic("stub") }
func (c *Client) SetACL(ctx context.Context, path string, acl []znode.ACL, version int32) (znode.Stat, error) {
	panic("stub")
}

// Multi applies all ops (Create, Delete, SetData, Check) or none. On failure the
// results say which op failed and the error is an *Error with that op's code.
func (c *Client) Multi(ctx context.Context, ops ...znode.Op) ([]znode.Result, error) { panic("stub") }

// ReadOptions modifies a read. Zero: linearizable.
type ReadOptions struct{ Stale bool }

func (c *Client) Get(ctx context.Context, path string, o ReadOptions) ([]byte, znode.Stat, error) {
	panic("stub")
}
func (c *Client) Exists(ctx context.Context, path string, o ReadOptions) (znode.Stat, bool, error) {
	panic("stub")
}
func (c *Client) Children(ctx context.Context, path string, o ReadOptions) ([]string, znode.Stat, error) {
	panic("stub") // pages as needed: any number of children
}

// List is one page of children in ascending order, with Stats if asked.
func (c *Client) List(ctx context.Context, path string, p wire.List, o ReadOptions) (wire.ListReply, error) {
	panic("stub")
}
func (c *Client) GetACL(ctx context.Context, path string) ([]znode.ACL, znode.Stat, error) {
	panic("stub")
}
func (c *Client) CountDescendants(ctx context.Context, path string) (int, error)  { panic("stub") }
func (c *Client) Ephemerals(ctx context.Context, prefix string) ([]string, error) { panic("stub") }
func (c *Client) WhoAmI(ctx context.Context) ([]znode.Identity, error)            { panic("stub") }
func (c *Client) AddAuth(ctx context.Context, a Auth) error                       { panic("stub") } // and on later connections

// Sync is a barrier: later reads, stale ones too, see all that was committed before it.
func (c *Client) Sync(ctx context.Context, path string) error { panic("stub") }

// One-shot watches. C gets one event at most and is then closed; it is closed without
// an event when the session ends or Cancel is called. GetW and ChildrenW leave no
// watch behind when they fail; ExistsW watches a missing znode too.
type OneShot struct {
	C      <-chan wire.Event
	Cancel func()
}

func (c *Client) GetW(ctx context.Context, path string) ([]byte, znode.Stat, OneShot, error) {
	panic("stub")
}
func (c *Client) ExistsW(ctx context.Context, path string) (znode.Stat, bool, OneShot, error) {
	panic("stub")
}
func (c *Client) ChildrenW(ctx context.Context, path string) ([]string, znode.Stat, OneShot, error) {
	panic("stub")
}

type WatchOptions struct {
	Recursive bool
	// FromZxid, if not 0, first delivers the events after that zxid.
	FromZxid int64
}

// Watch yields events in zxid order until ctx ends (silently), the session ends (an
// error) or the loop breaks. An event of type wire.EventGap says that events are
// missing: read again.
func (c *Client) Watch(ctx context.Context, path string, o WatchOptions) iter.Seq2[wire.Event, error] {
	panic("stub")
}

// Session returns the current session; after an expiry a new one takes its place.
func (c *Client) Session() *Session { panic("stub") }

// Session is one session of a Client; safe for concurrent use.
type Session struct{}

func (s *Session) ID() session.ID         { panic("stub") }
func (s *Session) Password() []byte       { panic("stub") }
func (s *Session) Timeout() time.Duration { panic("stub") } // negotiated
func (s *Session) Done() <-chan struct{}  { panic("stub") } // closed when over
func (s *Session) Err() error             { panic("stub") } // znode.SessionExpired, ErrClosed, nil while open

// State is Connecting, Connected, Suspended or Over.
type State uint8

const (
	Connecting State = iota
	Connected
	Suspended
	Over
)

func (s *Session) State() State                               { panic("stub") }
func (s *Session) States(ctx context.Context) iter.Seq[State] { panic("stub") } // latest wins, never drops the last

// Proof says: the server will not end the session before Sent+TTL. Sent was read
// before the request was written.
type Proof struct {
	Sent time.Time
	TTL  time.Duration
}

func (s *Session) Proof() Proof { panic("stub") }

// Renew is one committed-leadership round trip that proves the session lives, and per
// held znode whether it still exists.
func (s *Session) Renew(ctx context.Context, held ...wire.Held) (Proof, []znode.Error, error) {
	panic("stub")
}

// Admin calls.
func (c *Client) Sessions(ctx context.Context, after session.ID, limit int32) (wire.SessionsReply, error) {
	panic("stub")
}
func (c *Client) Status(ctx context.Context) (wire.StatusReply, error) { panic("stub") }
func (c *Client) KillSession(ctx context.Context, id session.ID) error { panic("stub") }

// Stats counts what the client did, for tools: connects, resumes, resent requests.
type Stats struct{ Connects, Resumes, Expiries, Resent, Requests int64 }

func (c *Client) Stats() Stats { panic("stub") }
