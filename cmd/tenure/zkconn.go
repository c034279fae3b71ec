package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tenure-dev/tenure/client"
	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/znode"
)

const (
	// zkReplyMax bounds one reply, as package client does.
	zkReplyMax = 64 << 20
	// zkRequestMax bounds one request: a server's jute.maxbuffer, where nobody raised it.
	// Beyond it a server cuts the connection, and what became of a write is unknown.
	zkRequestMax = 1<<20 - 1
	// zkRetryPause is the least time between two attempts of one read.
	zkRetryPause = 50 * time.Millisecond
)

// zkOptions says how to reach a ZooKeeper.
type zkOptions struct {
	servers []string // host:port
	chroot  string   // "" or a path
	timeout time.Duration
	auth    []client.Auth
	tls     *tls.Config // nil = plain
	stale   bool        // no sync before the first read
}

// zkOptions builds the options for servers, which are one ZooKeeper's.
func (a *app) zkOptions(servers []endpoint) (zkOptions, error) {
	o := zkOptions{chroot: servers[0].chroot, timeout: a.sessionTimeout, stale: a.stale}
	for _, e := range servers {
		o.servers = append(o.servers, e.host)
	}
	if a.tokenFile != "" {
		return o, usagef("--token-file: an admin token is for a Tenure server, not for a ZooKeeper")
	}
	var err error
	if servers[0].secure {
		if o.tls, err = a.tlsConfig(); err != nil {
			return o, err
		}
	}
	o.auth, err = a.ownIdentities()
	return o, err
}

// zkTree is the tree of a ZooKeeper, over a library that knows no contexts. Its calls
// give the errors of package client: definite answers are *client.Error, a write whose
// answer was not seen is client.ErrUnknown. Reads are tried again while the session
// lasts. It is safe for concurrent use.
type zkTree struct {
	conn    *zk.Conn
	chroot  string
	dialer  *zkDialer
	session *zkSession
	events  <-chan zk.Event // closed when the library's goroutines have ended
	calls   sync.WaitGroup  // goroutines that wait for the library

	mu       sync.Mutex
	lists    map[string][]string // the rest of lists that are read in pages
	watching map[*zkWatch]struct{}
}

// connectZK opens a session and presents the identities. ctx bounds only this. Without
// o.stale it waits until the member has all that was committed before, so that reads are
// not older than the call.
func connectZK(ctx context.Context, o zkOptions) (*zkTree, error) {
	held := newZKSession(o.timeout)
	z := &zkTree{
		chroot: o.chroot, dialer: newZKDialer(o.tls, held), session: held,
		lists: map[string][]string{}, watching: map[*zkWatch]struct{}{},
	}
	var err error
	z.conn, z.events, err = zk.Connect(o.servers, o.timeout, zk.WithDialer(z.dialer.dial), zk.WithHostProvider(&zkHosts{}),
		zk.WithLogger(z.dialer), zk.WithLogInfo(false), zk.WithEventCallback(z.onEvent), zk.WithMaxBufferSize(zkReplyMax))
	if err != nil {
		z.dialer.stop()
		return nil, err
	}
	if err = z.begin(ctx, o); err != nil {
		_ = z.Close() // err says more
		return nil, err
	}
	return z, nil
}

// begin waits for the session and makes it ready for use.
func (z *zkTree) begin(ctx context.Context, o zkOptions) error {
	select {
	case <-z.session.opened:
		z.session.setID(session.ID(z.conn.SessionID()))
	case <-ctx.Done():
		return &zkCallError{op: "connect", why: []error{z.whyNot(), ctx.Err()}}
	}
	for _, auth := range o.auth {
		_, err := zkCall(ctx, z, "auth", "", false, func() (none struct{}, err error) {
			return none, z.conn.AddAuth(auth.Scheme, []byte(auth.Secret))
		})
		if err != nil {
			return err
		}
	}
	if o.stale {
		return nil
	}
	return z.Sync(ctx, "/")
}

// whyNot is why there is no connection.
func (z *zkTree) whyNot() error {
	if err := z.dialer.cause(); err != nil {
		return err
	}
	return errors.New("no answer")
}

// onEvent hears what the library hears, on the library's goroutine: it must not block.
func (z *zkTree) onEvent(e zk.Event) {
	z.mu.Lock()
	defer z.mu.Unlock()
	switch {
	case e.Type == zk.EventSession:
		if z.session.changed(e.State) {
			for w := range z.watching {
				w.reconnected()
			}
		}
	case e.Type > 0:
		for w := range z.watching {
			w.fired(z.below(e.Path), e.Type)
		}
	}
}

// Held implements tree.
func (z *zkTree) Held() heldSession { return z.session }

// Close ends the session and waits for all goroutines, some seconds at most. It fails
// if there was no connection to end the session on.
func (z *zkTree) Close() error {
	connected := z.conn.State() == zk.StateHasSession
	if !connected {
		z.dialer.stop() // nobody is there to say goodbye to
	}
	z.conn.Close()
	z.dialer.stop()
	z.session.end(client.ErrClosed)
	for range z.events { // until the library closes it
	}
	z.calls.Wait()
	if !connected {
		return &zkCallError{op: "close", why: []error{errors.New("the session's ephemerals stay until it expires"), z.whyNot()}}
	}
	return nil
}

// full returns path with the chroot before it.
func (z *zkTree) full(path string) string {
	if path == "/" && z.chroot != "" {
		return z.chroot
	}
	return z.chroot + path
}

// below returns path without the chroot.
func (z *zkTree) below(path string) string {
	if path = strings.TrimPrefix(path, z.chroot); path == "" {
		return "/"
	}
	return path
}

// zkCallError is a call that got no definite answer.
type zkCallError struct {
	op, path string
	why      []error
}

// Error names the operation and all causes.
func (e *zkCallError) Error() string {
	text := strings.TrimSpace(e.op + " " + e.path)
	for _, err := range e.why {
		text += ": " + err.Error()
	}
	return text
}

// Unwrap returns the causes.
func (e *zkCallError) Unwrap() []error { return e.why }

// zkCall runs one request of the library until it is answered, ctx ends or the session
// does. What was certainly not sent, and a read, is tried again. It names the path as
// the caller gave it.
func zkCall[T any](ctx context.Context, z *zkTree, op, path string, isWrite bool, request func() (T, error)) (T, error) {
	type reply struct {
		value T
		err   error
	}
	var none T
	unanswered := func(causes ...error) error {
		if isWrite {
			causes = append([]error{client.ErrUnknown}, causes...)
		}
		return &zkCallError{op, path, causes}
	}
	for {
		if err := ctx.Err(); err != nil {
			return none, &zkCallError{op, path, []error{client.ErrUnavailable, z.whyNot(), err}}
		}
		done := make(chan reply, 1)
		z.calls.Go(func() {
			value, err := request()
			done <- reply{value, err}
		})
		var r reply
		select {
		case r = <-done:
		case <-ctx.Done():
			return none, unanswered(z.whyNot(), ctx.Err())
		case <-z.session.done:
			return none, unanswered(z.session.Err())
		}
		code, definite := zkCode(r.err)
		switch {
		case r.err == nil:
			return r.value, nil
		case definite:
			return r.value, &client.Error{Op: op, Path: path, Code: code}
		case errors.Is(r.err, zk.ErrNoServer): // not sent; the library paused
		case isWrite || !isConnectionError(r.err):
			return none, unanswered(r.err)
		}
		if err := pause(ctx, zkRetryPause); err != nil {
			return none, unanswered(z.whyNot(), err)
		}
	}
}

// pause waits, at most until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// isConnectionError reports whether a request failed with its connection, and not
// because its reply could not be read.
func isConnectionError(err error) bool {
	for _, wrong := range []error{zk.ErrShortBuffer, zk.ErrPtrExpected, zk.ErrUnhandledFieldType} {
		if errors.Is(err, wrong) {
			return false
		}
	}
	return true
}

// zkCodes are the answers of a server that the library turns into errors of its own.
var zkCodes = map[error]znode.Error{
	zk.ErrAPIError: znode.APIError, zk.ErrNoNode: znode.NoNode, zk.ErrNoAuth: znode.NoAuth,
	zk.ErrBadVersion: znode.BadVersion, zk.ErrNoChildrenForEphemerals: znode.NoChildrenForEphemerals,
	zk.ErrNodeExists: znode.NodeExists, zk.ErrNotEmpty: znode.NotEmpty, zk.ErrInvalidACL: znode.InvalidACL,
	zk.ErrAuthFailed: znode.AuthFailed, zk.ErrSessionMoved: znode.SessionMoved,
	zk.ErrReconfigDisabled: znode.ReconfigDisabled, zk.ErrBadArguments: znode.BadArguments,
	zk.ErrInvalidPath: znode.BadArguments,
}

// zkCode returns the server's answer, false if err is none.
func zkCode(err error) (znode.Error, bool) {
	if err == nil {
		return znode.OK, true
	}
	if code, ok := zkCodes[err]; ok {
		return code, true
	}
	// Codes that the library has no name for are only in its text.
	var code int32
	if n, scanErr := fmt.Sscanf(err.Error(), "unknown error: %d", &code); n == 1 && scanErr == nil {
		return znode.Error(code), true
	}
	return znode.OK, false
}

// codeOf returns the definite answer in the chain of err, false if there is none.
func codeOf(err error) (znode.Error, bool) {
	var definite *client.Error
	if !errors.As(err, &definite) {
		return znode.OK, false
	}
	return definite.Code, true
}

// isGone reports whether err says that there is no such node.
func isGone(err error) bool { return errors.Is(err, znode.NoNode) }
