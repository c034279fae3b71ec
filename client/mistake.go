package client

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
)

// What is told of a port that is not what its endpoint says.
var (
	errWantsTLS    = errors.New("the server speaks TLS on this port: the endpoint must be wss://")
	errNotHTTP     = errors.New("what answers on this port does not speak HTTP")
	errSubprotocol = errors.New("the server does not speak subprotocol " + subprotocol)
)

// statusError is an HTTP answer that is not the upgrade to a websocket.
type statusError struct {
	code         int
	status, body string
	err          error
}

// newStatusError keeps the beginning of an answer that is text for people.
func newStatusError(resp *http.Response, err error) *statusError {
	e := &statusError{code: resp.StatusCode, status: resp.Status, err: err}
	kind := resp.Header.Get("Content-Type")
	if kind == "" || strings.HasPrefix(kind, "text/plain") {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 200)) // what came of it will do
		e.body = strings.Join(strings.Fields(string(body)), " ")
	}
	return e
}

func (e *statusError) Error() string {
	text := fmt.Sprintf("%v: HTTP status %s", e.err, e.status)
	if e.body != "" {
		text += ": " + e.body
	}
	return text
}

func (e *statusError) Unwrap() error { return e.err }

// isMistake reports whether an attempt failed with err because the endpoint, or what the
// client was told to trust or to present, does not fit the server. To wait does not heal
// that. All else may be a server that starts, is busy or restarts, and is tried again;
// also names that do not resolve yet, and certificates that are not valid now, which may
// be the fault of a clock that is not set yet.
func isMistake(err error) bool {
	if errors.Is(err, errWantsTLS) || errors.Is(err, errNotHTTP) || errors.Is(err, errSubprotocol) {
		return true
	}
	if _, plain := errors.AsType[tls.RecordHeaderError](err); plain {
		return true
	}
	if status, ok := errors.AsType[*statusError](err); ok {
		switch status.code {
		case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
			return false
		case http.StatusNotImplemented, http.StatusHTTPVersionNotSupported:
			return true
		}
		return status.code < 500
	}
	if bad, ok := errors.AsType[x509.CertificateInvalidError](err); ok && bad.Reason == x509.Expired {
		return false
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	// An alert, such as that a client certificate is required. Its type is not exported.
	alert, ok := errors.AsType[*net.OpError](err)
	return ok && alert.Op == "remote error" && alert.Err.Error() != "tls: internal error"
}

// mistakes are the endpoints whose last attempt failed by a mistake, by name. One
// goroutine may use it at a time.
type mistakes map[string]error

// note takes the outcome of an attempt at ep. Once all endpoints are mistakes it returns
// the causes, else nil.
func (m mistakes) note(ep endpoint, err error, all []endpoint) error {
	if !isMistake(err) {
		delete(m, ep.name)
		return nil
	}
	m[ep.name] = err
	for _, other := range all {
		if m[other.name] == nil {
			return nil
		}
	}
	if len(m) == 1 {
		return err
	}
	var why causes
	for _, name := range slices.Sorted(maps.Keys(m)) {
		why = append(why, m[name])
	}
	return &why
}

// causes are the errors of several endpoints in one line.
type causes []error

func (c *causes) Error() string {
	var texts []string
	for _, err := range *c {
		texts = append(texts, strings.TrimPrefix(err.Error(), "client: "))
	}
	return strings.Join(texts, "; ")
}

func (c *causes) Unwrap() []error { return *c }

// judgeGreeting says of a failed upgrade what the first byte that came, 0 if none did,
// shows of the server.
func judgeGreeting(err error, greeting byte, secure bool) error {
	const tlsAlert, tlsHandshake = 21, 22
	switch {
	case greeting == 0 && !secure:
		return fmt.Errorf("the server ended the connection without an answer, as one does that wants TLS (wss://): %w", err)
	case greeting == 0 || greeting == 'H':
		return err
	case !secure && (greeting == tlsAlert || greeting == tlsHandshake):
		return fmt.Errorf("%w: %w", errWantsTLS, err)
	}
	return fmt.Errorf("%w: %w", errNotHTTP, err)
}
