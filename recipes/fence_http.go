package recipes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// FenceHeader is the header that carries fencing tokens over HTTP: the name of a fence,
// a semicolon, a space, and the token in decimal digits:
//
//	Fencing-Token: /svc/leader; 4294967297
//
// In the name every byte but letters, digits and "-._~/" is percent-encoded. A request
// that is guarded by several fences has a line for each; lines may be joined with commas.
const FenceHeader = "Fencing-Token"

// fencesMax bounds the fences of one request.
const fencesMax = 16

// formatFence returns the value of a FenceHeader.
func formatFence(name string, t Token) string {
	escaped := strings.NewReplacer("%2F", "/", "+", "%20").Replace(url.QueryEscape(name))
	return escaped + "; " + strconv.FormatUint(uint64(t), 10)
}

// parseFences reads all FenceHeaders. Errors are ErrInvalid.
func parseFences(h http.Header) (map[string]Token, error) {
	fences := map[string]Token{}
	for _, line := range h.Values(FenceHeader) {
		for value := range strings.SplitSeq(line, ",") {
			name, t, err := parseFence(strings.TrimSpace(value))
			if err != nil {
				return nil, err
			}
			if before, twice := fences[name]; twice && before != t {
				return nil, fmt.Errorf("%w: %s: tokens %d and %d for %s", ErrInvalid, FenceHeader, before, t, name)
			}
			if fences[name] = t; len(fences) > fencesMax {
				return nil, fmt.Errorf("%w: %s: more than %d fences", ErrInvalid, FenceHeader, fencesMax)
			}
		}
	}
	return fences, nil
}

func parseFence(value string) (string, Token, error) {
	escaped, number, found := strings.Cut(value, ";")
	number = strings.TrimSpace(number)
	name, err := url.PathUnescape(escaped)
	t, err2 := strconv.ParseUint(number, 10, 64)
	if !found || err != nil || err2 != nil || number[0] == '0' {
		return "", 0, fmt.Errorf("%w: %s: %q is not <percent-encoded name>; <token from 1 to 2^64-1>", ErrInvalid, FenceHeader, value)
	}
	return name, Token(t), validateFence(name, Token(t))
}

// FenceHandlerOptions says what a FenceHandler demands.
type FenceHandlerOptions struct {
	// Require returns the names of the fences whose tokens the request must carry; none
	// lets it pass unguarded, as one that only reads may. Names come from here and never
	// from the request's header, for whoever could choose a name would choose one that
	// nobody raises. It must not be nil, and may be called concurrently.
	Require func(*http.Request) []string
}

// fenceRefusal is the body of a refusal, a problem of RFC 9457. Tokens are strings, for
// they do not fit a JavaScript number.
type fenceRefusal struct {
	Title   string `json:"title"`
	Status  int    `json:"status"`
	Detail  string `json:"detail"`
	Fence   string `json:"fence,omitempty"`
	Token   string `json:"token,omitempty"`
	Highest string `json:"highest,omitempty"`
}

// FenceHandler passes on to next the requests whose tokens g admits, and answers the
// others itself:
//
//   - 412 Precondition Failed to a stale token. It is a condition in a request's header
//     that does not hold, and, unlike 409 and 503, nothing tries it again unchanged. The
//     answer has a FenceHeader with the highest token.
//   - 428 Precondition Required if the token of a required fence is missing.
//   - 400 Bad Request if a FenceHeader cannot be understood.
//   - 503 Service Unavailable if the memory of tokens failed; nothing was admitted.
//
// The handler runs within g.Do: no request with a higher token is handled until it has
// returned, and the context of its request ends when one comes, so a handler must pass
// that context on to what it calls and must have no effects after it has returned.
// FenceTokenFromContext gives it the tokens. The result may be used concurrently.
func FenceHandler(next http.Handler, g *FenceGuard, o FenceHandlerOptions) (http.Handler, error) {
	switch {
	case next == nil:
		return nil, fmt.Errorf("%w: the handler behind a FenceHandler is nil", ErrInvalid)
	case g == nil:
		return nil, fmt.Errorf("%w: the FenceGuard of a FenceHandler is nil", ErrInvalid)
	case o.Require == nil:
		return nil, fmt.Errorf("%w: FenceHandlerOptions.Require is nil: it must name the fences of a request", ErrInvalid)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		names := slices.Clone(o.Require(r))
		slices.Sort(names) // one order for all requests, so that none waits for another in a circle
		names = slices.Compact(names)
		fences, err := parseFences(r.Header)
		if err != nil {
			refuse(w, fenceRefusal{Title: "fencing token not understood", Status: http.StatusBadRequest, Detail: err.Error()})
			return
		}
		for _, name := range names {
			if fences[name] == 0 {
				refuse(w, fenceRefusal{Title: "fencing token missing", Status: http.StatusPreconditionRequired, Fence: name,
					Detail: "the header " + FenceHeader + " must have the name of this fence and the token of its tenure"})
				return
			}
		}
		f := fencedRequest{guard: g, next: next, w: w, r: r, fences: fences}
		if err := f.serve(r.Context(), names); err != nil {
			refuseError(w, err)
		}
	}), nil
}

// fencedRequest is a request on its way through its fences.
type fencedRequest struct {
	guard  *FenceGuard
	next   http.Handler
	w      http.ResponseWriter
	r      *http.Request
	fences map[string]Token
}

// serve passes the fences of the given names and then the request. An error says that it
// was not passed on.
func (f fencedRequest) serve(ctx context.Context, names []string) error {
	if len(names) == 0 {
		f.next.ServeHTTP(f.w, f.r.WithContext(ctx))
		return nil
	}
	return f.guard.Do(ctx, names[0], f.fences[names[0]], func(ctx context.Context) error {
		return f.serve(context.WithValue(ctx, fenceContextKey(names[0]), f.fences[names[0]]), names[1:])
	})
}

// fenceContextKey is the key of a context's value: the token of the fence so named.
type fenceContextKey string

// FenceTokenFromContext returns the token that a FenceHandler admitted for the fence of
// that name, from the context of its request.
func FenceTokenFromContext(ctx context.Context, name string) (Token, bool) {
	t, ok := ctx.Value(fenceContextKey(name)).(Token)
	return t, ok
}

// refuseError answers for an error of FenceGuard.Do.
func refuseError(w http.ResponseWriter, err error) {
	if stale, ok := errors.AsType[*StaleTokenError](err); ok {
		w.Header().Set(FenceHeader, formatFence(stale.Key, stale.Highest))
		refuse(w, fenceRefusal{Title: "stale fencing token", Status: http.StatusPreconditionFailed, Detail: stale.Error(), Fence: stale.Key,
			Token: strconv.FormatUint(uint64(stale.Token), 10), Highest: strconv.FormatUint(uint64(stale.Highest), 10)})
		return
	}
	// What failed is told by the memory of tokens and may name files and hosts: it is not
	// for clients.
	refuse(w, fenceRefusal{Title: "fencing token not admitted", Status: http.StatusServiceUnavailable,
		Detail: "the highest token could not be read or raised; nothing was done"})
}

func refuse(w http.ResponseWriter, p fenceRefusal) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // a client that has left needs no answer
}
