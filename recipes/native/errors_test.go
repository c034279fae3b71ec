package native

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/client"
	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/recipes/recipestest"
	"github.com/tenure-dev/tenure/znode"
)

// classes are what an error can be to a recipe.
var classes = map[string]error{
	"uncertain": recipes.ErrUncertain, "unavailable": recipes.ErrUnavailable, "invalid": recipes.ErrInvalid,
	"expired": recipes.ErrSessionExpired, "closed": recipes.ErrSessionClosed,
	"canceled": context.Canceled, "deadline": context.DeadlineExceeded, "too large": client.ErrTooLarge,
	"NoNode": znode.NoNode, "NodeExists": znode.NodeExists, "BadVersion": znode.BadVersion, "NotEmpty": znode.NotEmpty,
}

// wantClasses checks that err is exactly what want lists.
func wantClasses(t testing.TB, what string, err error, want ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: no error, want %v", what, want)
		return
	}
	for name, class := range classes {
		wanted := strings.Contains(fmt.Sprint(want), name)
		if errors.Is(err, class) != wanted {
			t.Errorf("%s: error %q is %q: %v, want %v", what, err, name, !wanted, wanted)
		}
	}
}

// Goal: every kind of the client's error becomes what recipes call it, and nothing else.
// In particular what is over or invalid for good is never "try again". Method: a table.
func TestClassify(t *testing.T) {
	expired := fmt.Errorf("client: session 0x1: %w", znode.SessionExpired)
	badPath := znode.ValidatePath("x")
	for _, row := range []struct {
		err  error
		want []string
	}{
		{&client.Error{Op: "get", Path: "/x", Code: znode.NoNode}, []string{"NoNode"}},
		{errors.Join(client.ErrUnknown, context.Canceled), []string{"uncertain", "canceled"}},
		{errors.Join(client.ErrUnavailable, context.DeadlineExceeded), []string{"unavailable", "deadline"}},
		{errors.Join(client.ErrUnknown, expired), []string{"uncertain", "expired"}},
		{errors.Join(client.ErrUnavailable, expired), []string{"expired"}},
		{expired, []string{"expired"}},
		{errors.Join(client.ErrUnknown, client.ErrClosed), []string{"uncertain", "closed"}},
		{errors.Join(client.ErrUnavailable, client.ErrClosed), []string{"closed"}},
		{errors.Join(client.ErrUnavailable, badPath), []string{"invalid"}},
		{fmt.Errorf("%w: 2 bytes", client.ErrTooLarge), []string{"too large", "invalid"}},
		{context.Canceled, []string{"canceled"}},
	} {
		got := classify(row.err)
		wantClasses(t, fmt.Sprintf("%q", row.err), got, row.want...)
		if got.Error() != row.err.Error() || !errors.Is(got, row.err) {
			t.Errorf("%q became %q, which is no longer the client's own", row.err, got)
		}
	}
	if err := classify(nil); err != nil {
		t.Errorf("no error became %v", err)
	}
}

// Goal: definite answers are znode's codes, and arguments that break a rule are told so
// before anything is sent. Method: one call of each kind.
func TestDefiniteAnswers(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := startBackend(t, nil).store(t, client.Options{RequestBytesMax: 1 << 12})
	create(t, s, "/d", znode.Persistent)
	create(t, s, "/d/child", znode.Persistent)
	put := func(path string, data []byte, spec recipes.CreateSpec) error {
		_, err := s.Create(ctx, path, data, spec)
		return err
	}
	get := func(path string) error { _, _, err := s.Get(ctx, path); return err }
	getW := func(path string) error { _, _, _, err := s.GetW(ctx, path); return err }
	childrenW := func(path string) error { _, _, _, err := s.ChildrenW(ctx, path); return err }
	set := func(path string, c recipes.Cond) error { _, err := s.Set(ctx, path, nil, c); return err }
	for _, row := range []struct {
		what string
		err  error
		want string
	}{
		{"create twice", put("/d", nil, recipes.CreateSpec{}), "NodeExists"},
		{"create without parent", put("/no/x", nil, recipes.CreateSpec{}), "NoNode"},
		{"create at no path", put("d", nil, recipes.CreateSpec{}), "invalid"},
		{"create a TTL znode", put("/ttl", nil, recipes.CreateSpec{Kind: znode.TTL}), "invalid"},
		{"create too much", put("/big", make([]byte, 1<<13), recipes.CreateSpec{}), "too large, invalid"},
		{"get", get("/no"), "NoNode"},
		{"get no path", get("/d/"), "invalid"},
		{"getW", getW("/no"), "NoNode"},
		{"childrenW", childrenW("/no"), "NoNode"},
		{"set of another version", set("/d", recipes.IfVersion(7)), "BadVersion"},
		{"set of no version", set("/d", recipes.Cond{}), "invalid"},
		{"set at no path", set("//", recipes.Always()), "invalid"},
		{"delete with children", s.Delete(ctx, "/d", recipes.Always()), "NotEmpty"},
		{"delete of another version", s.Delete(ctx, "/d/child", recipes.IfVersion(7)), "BadVersion"},
		{"delete of no version", s.Delete(ctx, "/d/child", recipes.IfVersion(-1)), "invalid"},
		{"sync of no path", s.Sync(ctx, ""), "invalid"},
	} {
		wantClasses(t, row.what, row.err, row.want)
	}
}

// Goal: a write whose caller gives up is uncertain if it was sent and unavailable if
// not, and names the caller's reason. Method: a held answer; no server; a ctx that had
// ended before.
func TestOutcomeOfGivenUpWrites(t *testing.T) {
	t.Parallel()
	b := startBackend(t, nil)
	p := b.peer(t, patience)
	write := func(ctx context.Context) error {
		_, err := p.Store.Create(ctx, "/w", nil, recipes.CreateSpec{Sequential: true})
		return err
	}
	ctx, cancel := context.WithCancel(t.Context())
	held, release := p.Hold(recipestest.Create)
	outcome := make(chan error, 1)
	go func() { outcome <- write(ctx) }()
	receive(t, "a held answer", held)
	cancel()
	err, _ := receive(t, "the outcome", outcome)
	wantClasses(t, "a sent write", err, "uncertain", "canceled")
	wantClasses(t, "a write with an ended ctx", write(ctx), "unavailable", "canceled")
	_, _, err = p.Store.Get(ctx, "/")
	if !errors.Is(err, context.Canceled) || errors.Is(err, recipes.ErrUncertain) {
		t.Errorf("a read with an ended ctx: %v", err)
	}
	release()

	b.restartWith(t, func() {
		awaitState(t, p.Store.Session(), recipes.Suspended)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		wantClasses(t, "a write without a connection", write(ctx), "unavailable", "deadline")
	})
}

// Goal: what the end of a session leaves open is told apart: sent writes are uncertain,
// and nothing that was not sent is said to be worth trying again. Method: held and
// unsent calls over an expiry and over Close.
func TestOutcomeAtSessionEnd(t *testing.T) {
	t.Parallel()
	for _, end := range []struct {
		name, class string
		end         func(t *testing.T, p *recipestest.Peer)
	}{
		{"expiry", "expired", func(t *testing.T, p *recipestest.Peer) { p.Expire(t) }},
		{"close", "closed", func(t *testing.T, p *recipestest.Peer) {
			p.Partition()
			if err := p.Store.Close(); err == nil {
				t.Error("Close was confirmed through a partition")
			}
			p.Heal()
		}},
	} {
		t.Run(end.name, func(t *testing.T) {
			t.Parallel()
			p := startBackend(t, nil).peer(t, shortTimeout)
			s := p.Store
			before := s.Session()
			sent, read := make(chan error, 1), make(chan error, 1)
			held, _ := p.Hold(recipestest.Create)
			go func() {
				_, err := s.Create(context.Background(), "/w", nil, recipes.CreateSpec{})
				sent <- err
			}()
			receive(t, "a held answer", held)
			go func() {
				_, _, err := s.Get(context.Background(), "/")
				read <- err
			}()
			renewed := make(chan error, 1)
			go func() {
				_, _, err := before.Renew(context.Background())
				renewed <- err
			}()
			await(t, "the requests to be sent", func(context.Context) (bool, error) {
				return s.(*Store).c.Stats().Requests >= 3, nil
			})
			end.end(t, p)
			err, _ := receive(t, "the outcome of a write", sent)
			if before.Err() == nil || s.Session() == before && end.class == "expired" {
				t.Errorf("a call said %v while the session was not over to others", err)
			}
			wantClasses(t, "a sent write", err, "uncertain", end.class)
			err, _ = receive(t, "the outcome of a read", read)
			wantClasses(t, "a sent read", err, end.class)
			err, _ = receive(t, "the outcome of a renewal", renewed)
			wantClasses(t, "a renewal", err, end.class)
			_, _, err = before.Renew(t.Context())
			wantClasses(t, "a renewal of what is over", err, end.class)
			wantClasses(t, "the session", before.Err(), end.class)
			if end.class == "closed" {
				_, err := s.Create(t.Context(), "/x", nil, recipes.CreateSpec{})
				wantClasses(t, "a write after Close", err, "closed")
			}
		})
	}
}
