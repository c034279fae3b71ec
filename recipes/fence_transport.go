package recipes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// FenceHolder is what a FenceTransport needs of a *Tenure.
type FenceHolder interface {
	Name() string
	Token() Token
	CheckFor(d time.Duration) error
	Deadline() time.Time
}

// FenceTransport is an http.RoundTripper for requests that are sent in the name of a
// tenure, to a server behind a FenceHandler. For each request it
//
//   - asks CheckFor(Need) first; its error is returned and nothing is sent;
//   - adds the FenceHeader with the tenure's name and token;
//   - ends the request, its answer's body included, after Need, or without Need at the
//     deadline that the tenure has at the time of sending. The error is ErrUncertain, as
//     after any end of a request that was perhaps sent;
//   - returns the server's refusal of the token as a *StaleTokenError and no response.
//
// To send the tokens of several tenures use one FenceTransport as the Base of another.
// Set the fields before the first request; it may be used concurrently then.
type FenceTransport struct {
	Base   http.RoundTripper // default http.DefaultTransport
	Tenure FenceHolder       // a *Tenure; it must not be nil
	Name   string            // of the fence at the server; default Tenure.Name()
	Need   time.Duration     // the most that one request may take; 0 is until the deadline
}

// RoundTrip implements http.RoundTripper, but for judging that one kind of answer.
func (f *FenceTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	name, deadline, err := f.check()
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // it is read by nobody
		}
		return nil, err
	}
	token := f.Tenure.Token()
	late := fmt.Errorf("%w: %s: request with fencing token %d was not answered in its time", ErrUncertain, name, token)
	ctx, cancel := context.WithDeadlineCause(r.Context(), deadline, late)
	r = r.Clone(ctx)
	r.Header.Add(FenceHeader, formatFence(name, token))
	base := f.Base
	if base == nil {
		base = http.DefaultTransport
	}
	resp, err := base.RoundTrip(r)
	if err != nil {
		err = lateOr(ctx, err)
		cancel()
		return nil, err
	}
	if stale := staleResponse(resp, name, token); stale != nil {
		_ = resp.Body.Close() // all that matters is in the header
		cancel()
		return nil, stale
	}
	resp.Body = &fencedBody{ReadCloser: resp.Body, ctx: ctx, cancel: cancel}
	return resp, nil
}

// check returns the fence's name and when a request sent now must have ended.
func (f *FenceTransport) check() (name string, deadline time.Time, err error) {
	if f.Tenure == nil {
		return "", deadline, fmt.Errorf("%w: FenceTransport.Tenure is nil", ErrInvalid)
	}
	if f.Need < 0 {
		return "", deadline, fmt.Errorf("%w: FenceTransport.Need is %v: it must not be negative", ErrInvalid, f.Need)
	}
	if name = f.Name; name == "" {
		name = f.Tenure.Name()
	}
	if err := validateFence(name, f.Tenure.Token()); err != nil {
		return "", deadline, err
	}
	// The reading of the clock comes before the check, so that the time it grants has
	// not begun later than the one that was checked.
	if deadline = time.Now().Add(f.Need); f.Need == 0 {
		deadline = f.Tenure.Deadline()
	}
	return name, deadline, f.Tenure.CheckFor(f.Need)
}

// lateOr returns err, or if ctx ended for being late, both reasons.
func lateOr(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, ErrUncertain) && !errors.Is(err, ErrUncertain) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// staleResponse returns what resp says about a stale token of the fence, or nil. An
// application may answer 412 for reasons of its own.
func staleResponse(resp *http.Response, name string, t Token) error {
	if resp.StatusCode != http.StatusPreconditionFailed {
		return nil
	}
	fences, err := parseFences(resp.Header)
	if err != nil {
		return nil // not the answer of a FenceHandler
	}
	return staleUnless(name, t, fences[name])
}

// fencedBody is a body that is read in the time of its request.
type fencedBody struct {
	io.ReadCloser
	ctx    context.Context
	cancel context.CancelFunc
}

// Read implements io.Reader.
func (b *fencedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = lateOr(b.ctx, err)
	}
	return n, err
}

// Close implements io.Closer.
func (b *fencedBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}
