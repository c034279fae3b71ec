package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/recipes"
)

// Goal: a wrong command line of a recipe is exit code 2 and one line that says what is
// wrong, before anything is sent. Method: one per rule; there is no server.
func TestRecipeUsageErrors(t *testing.T) {
	for _, test := range []struct{ line, want string }{
		{"elect", "want NAME... -- CMD"},
		{"elect a", "want a command behind --"},
		{"elect a --", "want a command behind --"},
		{"elect / -- true", "a recipe needs a directory of its own"},
		{"elect //a -- true", "must not have an empty element"},
		{"elect a -- /does/not/exist", "/does/not/exist"},
		{"elect --observe a b", "takes one NAME"},
		{"elect --observe a -- true", "takes one NAME"},
		{"elect --count 2 a -- true", "is for --observe"},
		{"elect --restart --once a -- true", "only one makes sense"},
		{"lock a", "want NAME... -- CMD"},
		{"lock -- true", "want NAME... -- CMD"},
		{"lock --read --write a -- true", "only one makes sense"},
		{"lock --slots 2 a b -- true", "take one"},
		{"lock --try a b -- true", "take one"},
		{"lock --slots 1001 a -- true", "must be 1 to 1000"},
		{"lease", "want NAME [-- CMD]"},
		{"lease --try a", "needs a command"},
		{"lease --hand-over x a -- true", "takes no CMD"},
		{"floor a x", `TOKEN "x"`},
		{"join", "want GROUP"},
		{"members --count 1 g", "is for --watch"},
		{"config nonsense", `unknown command "config nonsense"`},
		{"config get c --format xml", `--format "xml"`},
		{"config set c x --history 1001", "must be 0 to 1000"},
		{"config set c x --if-version y", "want a version or none"},
		{"config set c { --format json", "not JSON"},
		{"config revert c x", `NUMBER "x"`},
		{"queue take q", "want NAME -- CMD"},
		{"counter c x", `DELTA "x"`},
		{"barrier nope b", "want raise, lower or wait"},
	} {
		code, stdout, stderr := testRun(t, strings.Fields(test.line)...)
		if code != exitUsage || stdout != "" || !strings.Contains(stderr, test.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: exit %d, %q, %q; want %q", test.line, code, stdout, stderr, test.want)
		}
	}
}

// Goal: the ends of what is held have exit codes of their own. Method: wrapped errors.
func TestRecipeExitCodes(t *testing.T) {
	lost := &recipes.LostError{Name: "/a", Token: 1, Why: recipes.ErrSessionExpired}
	for _, test := range []struct {
		err  error
		want int
	}{
		{lost, exitLost},
		{lostError("/a", lost), exitLost},
		{recipes.ErrConflict, exitConflict},
		{fmt.Errorf("put: %w", recipes.ErrQueueFull), exitConflict},
		{recipes.ErrSessionExpired, exitUnreachable},
		{invalid(fmt.Errorf("%w: so", recipes.ErrInvalid)), exitUsage},
		{errors.New("other"), exitError},
	} {
		if got := exitCode(test.err); got != test.want {
			t.Errorf("%v: exit code %d, want %d", test.err, got, test.want)
		}
	}
}

// Goal: a bare name is below the recipe's directory, a path is itself. Method: both.
func TestRecipePath(t *testing.T) {
	for name, want := range map[string]string{
		"a": "/tenure/locks/a", "a/b": "/tenure/locks/a/b", "/a": "/a", "/a/": "/a",
	} {
		if got, err := recipePath(locksDir, name); got != want || err != nil {
			t.Errorf("%q: %q, %v; want %q", name, got, err, want)
		}
	}
}
