package main

import (
	"strings"
	"testing"
)

// Goal: a terminal is asked and only yes is yes; elsewhere, and with --yes, nobody is.
// Method: answers on a standard input that counts as a terminal.
func TestConfirm(t *testing.T) {
	for _, test := range []struct {
		terminal, yes bool
		answer        string
		want          bool
	}{
		{true, false, "y\n", true},
		{true, false, "YES\n", true},
		{true, false, "\n", false},
		{true, false, "no\n", false},
		{true, false, "", false},
		{true, false, strings.Repeat("y", 1000), false},
		{true, true, "no\n", true},
		{false, false, "no\n", true},
	} {
		a, _, stderr := testApp(outputTable)
		a.stdin, a.stdinIsTerminal = strings.NewReader(test.answer), test.terminal
		got, err := a.confirm(t.Context(), test.yes, "delete %s?", "/a\x1b")
		if err != nil || got != test.want {
			t.Errorf("%+v: %v, %v", test, got, err)
		}
		asked := strings.Contains(stderr.String(), `delete /a\x1b? [y/N]`)
		if asked != (test.terminal && !test.yes) {
			t.Errorf("%+v: asked %q", test, stderr)
		}
	}
}

// Goal: a bar is shown on a terminal and nowhere else, and is gone in the end. Method:
// the same copy with and without one.
func TestProgress(t *testing.T) {
	for _, terminal := range []bool{true, false} {
		a, _, stderr := testApp(outputTable)
		a.stderrIsTerminal = terminal
		p := a.newProgress(1000, "saving")
		if n, err := p.Write(make([]byte, 500)); n != 500 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		if shown := strings.Contains(stderr.String(), "saving"); shown != terminal {
			t.Errorf("terminal %v: %q", terminal, stderr)
		}
		p.clear()
	}
}
