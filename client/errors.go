package client

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tenure-dev/tenure/znode"
)

// Outcomes of calls. Every error of a call that is not a definite answer wraps
// exactly one of ErrUnknown, ErrUnavailable and ErrTooLarge, or is about a read, whose
// outcome is of no consequence. Where the client was closed it wraps ErrClosed too.
var (
	// ErrUnknown: the write was sent and no answer will be seen; it may or may not have
	// been applied. Never returned while the session can be resumed, unless the
	// caller's own context ended.
	ErrUnknown = errors.New("client: outcome unknown")
	// ErrClosed: the client was closed.
	ErrClosed = errors.New("client: closed")
	// ErrUnavailable: the request was never sent, so it was certainly not applied.
	ErrUnavailable = errors.New("client: not sent, so certainly not applied")
	// ErrTooLarge: the request is over a size limit and was not applied.
	ErrTooLarge = errors.New("client: request too large")
)

// Causes of lost or refused connections, found in the chain of other errors.
var (
	// ErrHistoryBehind: a server ended the connection where it should have answered a
	// client that has seen changes. It does so if its own history ends before them: it
	// lags, or lost its data.
	ErrHistoryBehind = errors.New("client: connection ended without an answer to connect: the server's history may be behind what this client has seen")

	errRefused  = errors.New("client: server refused to resume the session")
	errProtocol = errors.New("client: server broke the protocol")
	errSilent   = errors.New("client: server does not run")
	errMoved    = errors.New("client: session moved to another connection")
	errDetached = fmt.Errorf("%w without ending the session", ErrClosed)
)

// Error is a definite answer of the server: the request was judged and refused.
type Error struct {
	Op   string // "create"
	Path string // as the caller gave it, "" if the operation has none
	Code znode.Error
	// Detail says more in words, where the server did.
	Detail string
}

// Error names the operation, the path and the code.
func (e *Error) Error() string {
	text := "client: " + subject(e.Op, e.Path) + ": " + e.Code.Error()
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	return text
}

// Unwrap returns the code.
func (e *Error) Unwrap() error { return e.Code }

// callError is a call that got no definite answer.
type callError struct {
	op, path string
	why      []error
}

func (e *callError) Error() string {
	var b strings.Builder
	b.WriteString("client: " + subject(e.op, e.path))
	for _, err := range e.why {
		b.WriteString(": " + strings.TrimPrefix(err.Error(), "client: "))
	}
	return b.String()
}

func (e *callError) Unwrap() []error { return e.why }

func subject(op, path string) string {
	if path == "" {
		return op
	}
	return op + " " + path
}

// connectError is one failed attempt, with the address that was tried.
type connectError struct {
	name string
	err  error
}

func (e *connectError) Error() string {
	return "client: connect to " + e.name + ": " + strings.TrimPrefix(e.err.Error(), "client: ")
}

func (e *connectError) Unwrap() error { return e.err }
