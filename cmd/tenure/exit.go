package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tenure-dev/tenure/client"
	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/znode"
)

// The exit codes, as newExitCodesTopic documents them.
const (
	exitOK          = 0
	exitError       = 1
	exitUsage       = 2
	exitConflict    = 3
	exitNotFound    = 4
	exitUnreachable = 5
	exitDenied      = 6
	exitLost        = 7
	exitDegraded    = 8
	exitInterrupted = 130
)

// newExitCodesTopic is the text of "tenure help exit-codes".
func newExitCodesTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "exit-codes",
		Short: "What the exit codes mean",
		Long: `The exit codes of tenure:

  0    done
  1    any other error
  2    usage: the command line or its input is wrong; nothing was sent
  3    busy or conflict: version conflict, node exists, node has children,
       the server refuses more work for now; another change of the members is under
       way; a lock, lease or election that
       is not free in time, a full queue
  4    not found: no such node or session
  5    not reachable: no server answered in time, there is no quorum, or would be none
       after a change of the members, or the session ended; when the error says "outcome unknown", the change may have been made
  6    not permitted: no permission, or the login failed
  7    lost: what was held is not any more, and the command was stopped
  8    degraded: all is served, but 'status' found something wrong
  130  interrupted

'create --ephemeral', 'txn', 'elect', 'lock', 'lease', 'join' and 'queue take' exit with
the exit code of their CMD; the last five with 128 and its number if a signal ended it.`,
	}
}

// usageError says what is wrong with the command line or its input.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

// usagef returns a usageError.
func usagef(format string, args ...any) error {
	return &usageError{fmt.Sprintf(format, args...)}
}

// codeError gives err an exit code that its content alone would not get.
type codeError struct {
	code int
	err  error
}

func (e *codeError) Error() string { return e.err.Error() }
func (e *codeError) Unwrap() error { return e.err }

// childExit carries the exit code of a command that tenure ran; it needs no message.
type childExit struct{ code int }

func (e *childExit) Error() string { return fmt.Sprintf("command exited with %d", e.code) }

// asChildExit turns the error of exec.Cmd.Run into a childExit where the command ran.
func asChildExit(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() >= 0 {
		return &childExit{exit.ExitCode()}
	}
	return err
}

// requestError is a failed request: where it was sent, and why it failed.
type requestError struct {
	where string
	err   error
}

// Error is one line such as "get /a on 127.0.0.1:2180: no node".
func (e *requestError) Error() string {
	var definite *client.Error
	if errors.As(e.err, &definite) {
		what := strings.TrimSpace(definite.Op + " " + definite.Path)
		if definite.Detail != "" {
			return fmt.Sprintf("%s on %s: %s", what, e.where, definite.Detail)
		}
		return fmt.Sprintf("%s on %s: %s", what, e.where, reasonOf(definite.Op, definite.Code))
	}
	var code znode.Error
	if errors.As(e.err, &code) && (code == znode.AuthFailed || code == znode.NoAuth) {
		return fmt.Sprintf("%s: %s (%s)", e.where, reason(code), plain(e.err))
	}
	return e.where + ": " + plain(e.err)
}

// plain is the text of an error of package client without its package's name and
// without the end of the context, which the callers say in words of their own.
func plain(err error) string {
	text := strings.ReplaceAll(err.Error(), "client: ", "")
	text = strings.Replace(text, ": "+context.DeadlineExceeded.Error(), "", 1)
	if text == "connect" {
		return "no answer"
	}
	return strings.TrimPrefix(text, "connect: ")
}

func (e *requestError) Unwrap() error { return e.err }

// reasonOf is reason for the operation op.
func reasonOf(op string, code znode.Error) string {
	if op == "create" && code == znode.NoNode {
		return "no node above it: its parent does not exist"
	}
	return reason(code)
}

// reason says in words of a user what a server's error means.
func reason(code znode.Error) string {
	switch code {
	case znode.NoNode:
		return "no node"
	case znode.NodeExists:
		return "node exists"
	case znode.NotEmpty:
		return "node has children"
	case znode.BadVersion:
		return "version conflict: the node has another version"
	case znode.NoAuth:
		return "no permission for the identities presented"
	case znode.AuthFailed:
		return "login failed: the server refused the identity or its secret"
	case znode.NoChildrenForEphemerals:
		return "an ephemeral node cannot have children"
	case znode.InvalidACL:
		return "invalid access list"
	case znode.BadArguments:
		return "bad path or argument"
	case znode.MarshallingError:
		return "the request is too large or malformed for the server"
	case znode.QuotaExceeded:
		return "a quota or the server's size limit is exceeded"
	case znode.ThrottledOp:
		return "the server is busy, try again"
	case znode.Unimplemented:
		return "the server does not know this operation"
	case znode.SessionExpired:
		return "the session has expired"
	}
	return code.Error()
}

// exitCode maps what a verb returned to the exit code of the process.
func exitCode(err error) int {
	var (
		usage *usageError
		coded *codeError
		child *childExit
		code  znode.Error
	)
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &child):
		return child.code
	case errors.As(err, &usage):
		return exitUsage
	case errors.As(err, &coded):
		return coded.code
	case errors.Is(err, recipes.ErrLost):
		return exitLost
	case errors.Is(err, recipes.ErrConflict), errors.Is(err, recipes.ErrQueueFull):
		return exitConflict
	case errors.As(err, &code):
		return exitCodeOf(code)
	case errors.Is(err, client.ErrUnavailable), errors.Is(err, client.ErrUnknown),
		errors.Is(err, recipes.ErrUnavailable), errors.Is(err, recipes.ErrUncertain),
		errors.Is(err, recipes.ErrSessionExpired), errors.Is(err, recipes.ErrSessionClosed),
		errors.Is(err, context.DeadlineExceeded):
		return exitUnreachable
	}
	return exitError
}

// exitCodeOf maps a server's error to an exit code.
func exitCodeOf(code znode.Error) int {
	switch code {
	case znode.BadVersion, znode.NodeExists, znode.NotEmpty, znode.ThrottledOp, znode.ReconfigInProgress:
		return exitConflict
	case znode.NoNode:
		return exitNotFound
	case znode.ConnectionLoss, znode.OperationTimeout, znode.NewConfigNoQuorum,
		znode.SessionExpired, znode.SessionMoved:
		return exitUnreachable
	case znode.NoAuth, znode.AuthFailed:
		return exitDenied
	}
	return exitError
}

// report prints err as one line and returns the exit code. After an interrupt the
// code is always exitInterrupted; the line then says how far the verb got.
func (a *app) report(ctx context.Context, err error) int {
	var child *childExit
	silent := err == nil || errors.As(err, &child)
	if ctx.Err() != nil && err != nil {
		if !silent && !isBareCancel(err) {
			fmt.Fprintf(a.stderr, "tenure: interrupted: %s\n", oneLine(err.Error()))
		}
		return exitInterrupted
	}
	if !silent {
		fmt.Fprintf(a.stderr, "tenure: %s\n", oneLine(err.Error()))
	}
	return exitCode(err)
}

// isBareCancel reports whether err says nothing beyond that it was interrupted.
func isBareCancel(err error) bool {
	if request, ok := err.(*requestError); ok {
		return errors.Is(request.err, context.Canceled)
	}
	return err == context.Canceled
}

// oneLine makes a message fit one line that is safe on a terminal.
func oneLine(s string) string {
	return safeText(strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' }), "; "))
}
