package recipes_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/recipes"
)

// holder is a tenure as far as a FenceTransport needs one.
type holder struct {
	name  string
	token recipes.Token
	until time.Time
}

func (h holder) Name() string         { return h.name }
func (h holder) Token() recipes.Token { return h.token }
func (h holder) Deadline() time.Time  { return h.until }
func (h holder) CheckFor(d time.Duration) error {
	if time.Now().Add(d).After(h.until) {
		return &recipes.LostError{Name: h.name, Token: h.token, Why: recipes.ErrDeadline}
	}
	return nil
}

// lasting returns a holder whose tenure outlasts the test.
func lasting(name string, token recipes.Token) holder {
	return holder{name, token, time.Now().Add(time.Hour)}
}

// fenced returns a handler behind the fences /a and "b, c; ü", of which requests with the
// method GET need none. It answers with the tokens it was given.
func fenced(t *testing.T, h recipes.HighWater) http.Handler {
	next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a, okA := recipes.FenceTokenFromContext(r.Context(), "/a")
		b, okB := recipes.FenceTokenFromContext(r.Context(), "b, c; ü")
		fmt.Fprintf(w, "%d %v %d %v", a, okA, b, okB)
	})
	handler, err := recipes.FenceHandler(next, recipes.NewFenceGuard(h), recipes.FenceHandlerOptions{
		Require: func(r *http.Request) []string {
			if r.Method == http.MethodGet {
				return nil
			}
			return []string{"b, c; ü", "/a", "/a"}
		}})
	if err != nil {
		t.Fatal(err)
	}
	return handler
}

// Goal: the handler admits what the guard admits and says what is wrong with the rest.
// Method: a table of headers, in order, at one guard.
func TestFenceHandlerAnswers(t *testing.T) {
	handler := fenced(t, &recipes.MemoryHighWater{})
	const b = "b%2C%20c%3B%20%C3%BC; 7"
	for _, c := range []struct {
		method string
		fences []string
		status int
		body   string // a part of it
	}{
		{"POST", []string{"/a; 5", b}, 200, "5 true 7 true"},
		{"POST", []string{"/a; 5, " + b}, 200, "5 true 7 true"}, // joined by a proxy
		{"POST", []string{"/a;6", b, "/a; 6", "/unknown; 1"}, 200, "6 true 7 true"},
		{"POST", []string{"/a; 5", b}, 412, `"fence":"/a","token":"5","highest":"6"`},
		{"POST", []string{"/a; 18446744073709551615", "b%2C%20c%3B%20%C3%BC; 6"}, 412, `"token":"6","highest":"7"`},
		{"POST", []string{"/a; 18446744073709551615", b}, 200, "18446744073709551615 true 7 true"},
		{"POST", []string{b}, 428, `"fence":"/a"`},
		{"POST", nil, 428, `"fence":"/a"`},
		{"GET", nil, 200, "0 false 0 false"},
		{"POST", []string{"/a; 7; 8", b}, 400, "/a; 7; 8"},
		{"POST", []string{"/a; 18446744073709551616", b}, 400, "18446744073709551616"},
		{"POST", []string{"/a; 7", "/a; 8", b}, 400, "tokens 7 and 8"},
		{"POST", []string{"/a; 0"}, 400, "/a; 0"}, {"POST", []string{"/a; 07"}, 400, "07"}, {"POST", []string{"/a; -7"}, 400, "-7"},
		{"POST", []string{"/a; 0x7"}, 400, "0x7"}, {"POST", []string{"/a;"}, 400, "/a;"}, {"POST", []string{"/a"}, 400, "/a"},
		{"POST", []string{""}, 400, "percent-encoded"}, {"POST", []string{"; 7"}, 400, "empty"}, {"POST", []string{"%zz; 7"}, 400, "%zz"},
		{"POST", []string{"%0A; 7"}, 400, "control"}, {"GET", []string{"x"}, 400, "x"},
		{"POST", []string{strings.Repeat("/a; 7,", 2) + manyFences(17)}, 400, "more than 16"},
	} {
		r := httptest.NewRequestWithContext(t.Context(), c.method, "/", nil)
		for _, f := range c.fences {
			r.Header.Add(recipes.FenceHeader, f)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.body) {
			t.Errorf("%s %q: %d %s, want %d with %s", c.method, c.fences, w.Code, w.Body, c.status, c.body)
		}
		if w.Code != 200 && (!json.Valid(w.Body.Bytes()) || w.Header().Get("Content-Type") != "application/problem+json") {
			t.Errorf("%s %q: not a problem in JSON: %s", c.method, c.fences, w.Body)
		}
	}
}

func manyFences(n int) string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("/%d; 1", i)
	}
	return strings.Join(names, ", ")
}

// Goal: options that guard nothing are refused, and a memory of tokens that fails lets
// nothing through and tells clients nothing about itself. Method: each once.
func TestFenceHandlerFailsClosed(t *testing.T) {
	g := recipes.NewFenceGuard(&recipes.MemoryHighWater{})
	o := recipes.FenceHandlerOptions{Require: func(*http.Request) []string { return nil }}
	_, err1 := recipes.FenceHandler(nil, g, o)
	_, err2 := recipes.FenceHandler(http.NotFoundHandler(), nil, o)
	_, err3 := recipes.FenceHandler(http.NotFoundHandler(), g, recipes.FenceHandlerOptions{})
	for _, err := range []error{err1, err2, err3} {
		if !errors.Is(err, recipes.ErrInvalid) {
			t.Errorf("%v, want ErrInvalid", err)
		}
	}
	r := httptest.NewRequestWithContext(t.Context(), "POST", "/", nil)
	r.Header.Set(recipes.FenceHeader, "/a; 1, b%2C%20c%3B%20%C3%BC; 7")
	w := httptest.NewRecorder()
	fenced(t, failing{errors.New("/var/secret: disk on fire")}).ServeHTTP(w, r)
	if w.Code != 503 || strings.Contains(w.Body.String(), "secret") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// Goal: both ends meet: names and tokens of every kind arrive as they were sent, and the
// refusal comes back as the typed error. Method: two transports, one on the other, over a
// real connection; then a former holder.
func TestFenceTransportAndHandler(t *testing.T) {
	server := httptest.NewServer(fenced(t, &recipes.MemoryHighWater{}))
	defer server.Close()
	post := func(a, b recipes.Token) (string, error) {
		inner := &recipes.FenceTransport{Base: server.Client().Transport, Tenure: lasting("/a", a)}
		outer := &recipes.FenceTransport{Base: inner, Tenure: lasting("/other", b), Name: "b, c; ü", Need: time.Minute}
		resp, err := (&http.Client{Transport: outer}).Post(server.URL, "text/plain", strings.NewReader("body"))
		if err != nil {
			return "", err
		}
		body, err := io.ReadAll(resp.Body)
		return string(body), errors.Join(err, resp.Body.Close())
	}
	const most = 1<<64 - 1
	if got, err := post(5, most); err != nil || got != "5 true 18446744073709551615 true" {
		t.Errorf("%q, %v", got, err)
	}
	for _, c := range []struct {
		a, b recipes.Token
		want recipes.StaleTokenError
	}{
		{4, most, recipes.StaleTokenError{Key: "/a", Token: 4, Highest: 5}},
		{5, most - 1, recipes.StaleTokenError{Key: "b, c; ü", Token: most - 1, Highest: most}},
	} {
		_, err := post(c.a, c.b)
		if stale, ok := errors.AsType[*recipes.StaleTokenError](err); !ok || *stale != c.want || !errors.Is(err, recipes.ErrStaleToken) {
			t.Errorf("%v, want %v", err, &c.want)
		}
	}
}

// Goal: nothing is sent for a tenure that is over or too short, or that has no token.
// Method: a server that must not be asked.
func TestFenceTransportChecksFirst(t *testing.T) {
	asked := 0
	base := roundTripper(func(*http.Request) (*http.Response, error) { asked++; return nil, errors.New("asked") })
	over := holder{"/a", 5, time.Now()}
	for _, c := range []struct {
		transport recipes.FenceTransport
		want      error
	}{
		{recipes.FenceTransport{Base: base, Tenure: over}, recipes.ErrLost},
		{recipes.FenceTransport{Base: base, Tenure: lasting("/a", 5), Need: 2 * time.Hour}, recipes.ErrLost},
		{recipes.FenceTransport{Base: base, Tenure: lasting("/a", 0)}, recipes.ErrInvalid},
		{recipes.FenceTransport{Base: base, Tenure: lasting("", 5)}, recipes.ErrInvalid},
		{recipes.FenceTransport{Base: base, Tenure: lasting("/a", 5), Need: -1}, recipes.ErrInvalid},
		{recipes.FenceTransport{Base: base}, recipes.ErrInvalid},
	} {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "http://localhost/", nil)
		if _, err := c.transport.RoundTrip(r); !errors.Is(err, c.want) {
			t.Errorf("%+v: %v, want %v", c.transport, err, c.want)
		}
	}
	if asked != 0 {
		t.Errorf("%d requests were sent", asked)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// near is a holder whose deadline is near but for whom every check passes.
type near struct{ holder }

func (near) CheckFor(time.Duration) error { return nil }

// stalled is a body of which the rest does not come.
type stalled struct {
	io.Reader
	ctx context.Context
}

func (s stalled) Read(p []byte) (int, error) {
	if n, err := s.Reader.Read(p); err == nil {
		return n, nil
	}
	<-s.ctx.Done()
	return 0, s.ctx.Err()
}

func (stalled) Close() error { return nil }

// Goal: a request ends with the time that the tenure grants it, before its answer or
// within it, as an uncertain outcome; the caller's own end stays what it is; the caller's
// request is left alone; a 412 of the application is passed on. Method: a server that
// never answers, a body that stalls, and a 412.
func TestFenceTransportEndsInTime(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer server.Close()
	const short = 50 * time.Millisecond
	f := recipes.FenceTransport{Base: server.Client().Transport, Tenure: near{holder{"/a", 5, time.Now().Add(short)}}}
	if _, err := (&http.Client{Transport: &f}).Get(server.URL); !errors.Is(err, recipes.ErrUncertain) {
		t.Errorf("never answered before the deadline: %v", err)
	}
	f.Tenure, f.Need = lasting("/a", 5), short
	if _, err := (&http.Client{Transport: &f}).Get(server.URL); !errors.Is(err, recipes.ErrUncertain) {
		t.Errorf("never answered in the time needed: %v", err)
	}
	f.Base = roundTripper(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: stalled{strings.NewReader("half"), r.Context()}}, nil
	})
	resp, err := (&http.Client{Transport: &f}).Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(resp.Body); string(body) != "half" || !errors.Is(err, recipes.ErrUncertain) {
		t.Errorf("half an answer: %q, %v", body, err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
	f.Base, f.Need = server.Client().Transport, 0
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := httptest.NewRequestWithContext(ctx, "GET", server.URL, nil)
	if _, err := f.RoundTrip(r); !errors.Is(err, context.Canceled) || errors.Is(err, recipes.ErrUncertain) {
		t.Errorf("the caller left: %v", err)
	}
	if len(r.Header) != 0 {
		t.Errorf("the caller's request was changed: %v", r.Header)
	}
	f.Base = roundTripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 412, Header: http.Header{}, Body: http.NoBody}, nil
	})
	if resp, err := f.RoundTrip(r); err != nil || resp.StatusCode != 412 {
		t.Errorf("the application's 412: %v", err)
	}
}

// Goal: P51 over HTTP: a request that was admitted and then paused in its handler does
// not act behind a newer holder's. Method: hold it; the newer one arrives; the held
// one's context ends and only when it has returned is the newer one handled.
func TestP51FenceHandlerOrdersRequests(t *testing.T) {
	order := make(chan recipes.Token, 3)
	entered := make(chan struct{})
	next := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		token, _ := recipes.FenceTokenFromContext(r.Context(), "/a")
		if token == 1 {
			close(entered)
			<-r.Context().Done()
			if !errors.Is(context.Cause(r.Context()), recipes.ErrStaleToken) {
				t.Errorf("the old request ends for %v", context.Cause(r.Context()))
			}
		}
		order <- token
	})
	handler, err := recipes.FenceHandler(next, recipes.NewFenceGuard(&recipes.MemoryHighWater{}),
		recipes.FenceHandlerOptions{Require: func(*http.Request) []string { return []string{"/a"} }})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	defer server.Close()
	send := func(token recipes.Token) error {
		client := http.Client{Transport: &recipes.FenceTransport{Base: server.Client().Transport, Tenure: lasting("/a", token)}}
		resp, err := client.Post(server.URL, "", nil)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	}
	old := make(chan error, 1)
	go func() { old <- send(1) }()
	<-entered
	if err := send(2); err != nil {
		t.Error(err)
	}
	if err := <-old; err != nil {
		t.Error(err)
	}
	if err := send(1); !errors.Is(err, recipes.ErrStaleToken) {
		t.Errorf("the old holder: %v", err)
	}
	if first, second := <-order, <-order; first != 1 || second != 2 || len(order) > 0 {
		t.Errorf("handled in the order %d, %d and %d more", first, second, len(order))
	}
}
