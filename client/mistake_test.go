package client

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// answering is a server that answers whatever it is asked with these bytes, and closes.
func answering(t *testing.T, answer string) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			answerOne(c, answer)
		}
	})
	t.Cleanup(func() { ln.Close(); wg.Wait() })
	return ln.Addr().String()
}

// answerOne reads an HTTP request, so that the answer is not lost to a reset.
func answerOne(c net.Conn, answer string) {
	http.ReadRequest(bufio.NewReader(c))
	io.WriteString(c, answer)
	c.Close()
}

// Goal: Connect tells a mistake that waiting does not heal at once, with address and
// cause, though it may try for a minute. Method: real sockets, one for each mistake.
func TestC149MistakesAreToldAtOnce(t *testing.T) {
	f := newFake(t, "a:1")
	handler := f.httpServer(f.members["a:1"]).Handler
	server := func(h http.Handler, secure bool) *httptest.Server {
		s := httptest.NewUnstartedServer(h)
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		s.TLS = &tls.Config{}
		if secure {
			s.StartTLS()
		} else {
			s.Start()
		}
		t.Cleanup(s.Close)
		return s
	}
	at := func(s *httptest.Server) string { return s.Listener.Addr().String() }
	plain, secure, strict := server(handler, false), server(handler, true), httptest.NewUnstartedServer(handler)
	strict.Config.ErrorLog = log.New(io.Discard, "", 0)
	strict.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	strict.StartTLS()
	t.Cleanup(strict.Close)
	foreign := server(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u := websocket.Upgrader{}
		if ws, err := u.Upgrade(w, r, nil); err == nil {
			ws.Close()
		}
	}), false)
	roots := x509.NewCertPool()
	roots.AddCert(secure.Certificate())
	for _, tc := range []struct {
		name, endpoint, want string
		tls                  *tls.Config
	}{
		{"TLS to plain", "wss://" + at(plain), "does not speak TLS", nil},
		{"plain to TLS that answers in HTTP", "ws://" + at(secure), "HTTP request to an HTTPS server", nil},
		{"plain to TLS that sends an alert", "ws://" + answering(t, "\x15\x03\x01\x00\x02\x02\x16"), "must be wss://", nil},
		{"wrong CA", "wss://" + at(secure), "unknown authority", nil},
		{"other name", "wss://" + at(secure), "not other.test", &tls.Config{RootCAs: roots, ServerName: "other.test"}},
		{"no client certificate", "wss://" + at(strict), "certificate required", &tls.Config{RootCAs: roots}},
		{"no such path", "ws://" + at(server(http.NotFoundHandler(), false)), "404", nil},
		{"no subprotocol", "ws://" + at(foreign), "does not speak subprotocol", nil},
		{"no HTTP", "ws://" + answering(t, "SSH-2.0-server\r\n"), "does not speak HTTP", nil},
	} {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		began := time.Now()
		_, err := Connect(ctx, Options{Endpoints: []string{tc.endpoint}, TLS: tc.tls})
		took := time.Since(began)
		cancel()
		if err == nil || took > 20*time.Second || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v after %v, want it at once", tc.name, err, took)
			continue
		}
		if text := err.Error(); strings.Count(text, tc.endpoint) != 1 || !strings.Contains(text, tc.want) || strings.Contains(text, "\n") {
			t.Errorf("%s: %q: must say the address once and %q", tc.name, text, tc.want)
		}
	}
}

// Goal: what may heal is tried until ctx ends, and the error has the last cause. Method: a
// server that is busy and then is not, and ones that never answer or only end the
// connection.
func TestC149TransientFailuresAreTriedAgain(t *testing.T) {
	f := newFake(t, "a:1")
	handler := f.httpServer(f.members["a:1"]).Handler
	var asked atomic.Int32
	busy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch asked.Add(1) {
		case 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 2:
			w.WriteHeader(http.StatusTooManyRequests)
		default:
			handler.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(busy.Close)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := Connect(ctx, Options{Endpoints: []string{busy.Listener.Addr().String()}})
	if err != nil || asked.Load() != 3 {
		t.Fatalf("asked %d times: %v", asked.Load(), err)
	}
	c.Close()
	short, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	addr := answering(t, "")
	_, err = Connect(short, Options{Endpoints: []string{addr}})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), addr) || !strings.Contains(err.Error(), "wants TLS") {
		t.Errorf("a server that only ends the connection: %v", err)
	}
}

// Goal: one endpoint that is a mistake does not keep a client from the others, also if
// those need time; if all are mistakes each is named. Method: fake time, a dialer with
// two servers that are none, and a member that is down for a while.
func TestC149MistakesAmongSeveralEndpoints(t *testing.T) {
	bubble(t, []string{"a:1"}, func(t *testing.T, f *fakeEnsemble) {
		var wg sync.WaitGroup
		defer wg.Wait()
		o := Options{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if addr == "a:1" {
				return f.dial(ctx, network, addr)
			}
			near, far := net.Pipe()
			wg.Go(func() { answerOne(far, "SSH-2.0-server\r\n") })
			return near, nil
		}}
		connect := func(limit time.Duration, endpoints ...string) (time.Duration, error) {
			ctx, cancel := context.WithTimeout(context.Background(), limit)
			defer cancel()
			o.Endpoints = endpoints
			began := time.Now()
			c, err := Connect(ctx, o)
			if err == nil {
				c.Close()
			}
			return time.Since(began), err
		}
		took, err := connect(time.Hour, "x:1", "y:1")
		if err == nil || took > time.Second || strings.Count(err.Error(), "x:1") != 1 || strings.Count(err.Error(), "y:1") != 1 {
			t.Errorf("only mistakes: %v after %v", err, took)
		}
		f.with(func() { f.members["a:1"].down = true })
		if took, err = connect(time.Minute, "x:1", "a:1"); took != time.Minute || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a mistake and one that is down: %v after %v", err, took)
		}
		up := time.AfterFunc(30*time.Second, func() { f.with(func() { f.members["a:1"].down = false }) })
		defer up.Stop()
		if took, err = connect(time.Minute, "x:1", "a:1", "y:1"); err != nil || took < 30*time.Second {
			t.Errorf("mistakes and one that comes up: %v after %v", err, took)
		}
	})
}

// Goal: what waiting heals is told from what it does not. Method: a table of causes.
func TestC149WhatIsAMistake(t *testing.T) {
	invalid := func(reason x509.InvalidReason) error {
		return &tls.CertificateVerificationError{Err: x509.CertificateInvalidError{Reason: reason}}
	}
	for _, tc := range []struct {
		err  error
		want bool
	}{
		{&statusError{code: 404}, true}, {&statusError{code: 426}, true}, {&statusError{code: 301}, true}, {&statusError{code: 200}, true}, {&statusError{code: 501}, true},
		{&statusError{code: 503}, false}, {&statusError{code: 502}, false}, {&statusError{code: 429}, false}, {&statusError{code: 408}, false},
		{&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, true},
		{invalid(x509.NotAuthorizedToSign), true},
		{invalid(x509.Expired), false}, // or not valid yet: the clock may be wrong for a while
		{&net.OpError{Op: "remote error", Err: errors.New("tls: handshake failure")}, true},
		{&net.OpError{Op: "remote error", Err: errors.New("tls: internal error")}, false},
		{&net.OpError{Op: "dial", Err: errors.New("connection refused")}, false},
		{&net.DNSError{Err: "no such host", IsNotFound: true}, false},
		{io.EOF, false},
	} {
		if got := isMistake(&connectError{"ws://a:1", fmt.Errorf("wrapped: %w", tc.err)}); got != tc.want {
			t.Errorf("%v: %v, want %v", tc.err, got, tc.want)
		}
	}
}

// Goal: once there was a session a mistake is as transient as all else. Method: for five
// seconds something else answers at the server's address.
func TestC149MistakeInAnOpenSession(t *testing.T) {
	bubble(t, nil, func(t *testing.T, f *fakeEnsemble) {
		var wg sync.WaitGroup
		defer wg.Wait()
		var other atomic.Bool
		c := f.client(t, func(o *Options) {
			o.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
				if !other.Load() {
					return f.dial(ctx, network, addr)
				}
				near, far := net.Pipe()
				wg.Go(func() { answerOne(far, "HTTP/1.1 404 Not Found\r\n\r\n") })
				return near, nil
			}
		})
		s := c.Session()
		other.Store(true)
		f.cutAll()
		awaitState(t, s, Suspended)
		back := time.AfterFunc(5*time.Second, func() { other.Store(false) })
		defer back.Stop()
		awaitState(t, s, Connected)
		if c.Session() != s || s.Err() != nil {
			t.Errorf("the session was lost: %v", s.Err())
		}
	})
}
