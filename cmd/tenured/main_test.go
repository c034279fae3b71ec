package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// runHere runs a command in this process.
func runHere(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(context.Background(), args, &out, &errs)
	return code, out.String(), errs.String()
}

// Goal: commands that do not serve print what they should and exit as documented.
func TestCommands(t *testing.T) {
	for _, row := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"version"}, exitOK, "tenured "},
		{[]string{"version", "x"}, exitUsage, `"x"`},
		{[]string{"help"}, exitOK, "--max-sessions"},
		{[]string{"--help"}, exitOK, "Exit codes"},
		{[]string{"check", "-h"}, exitOK, "Usage"},
		{[]string{"config"}, exitUsage, "check or print-default"},
		{[]string{"config", "print-default"}, exitOK, "# Environment: TENURE_LISTEN\n#listen: 127.0.0.1:2180\n"},
		{[]string{"config", "print-default", "x"}, exitUsage, `"x"`},
		{[]string{"config", "check"}, exitUsage, "data-dir"},
		{[]string{"config", "check", "--data-dir", "/d", "--max-sessions", "7"}, exitOK, "max-sessions: 7 # flag --max-sessions\n"},
		{[]string{"config", "check", "--data-dir", "/d"}, exitOK, "reap-interval: 1m # default\n"},
		{[]string{"config", "check", "--data-dir", "/d", "--max-sessions", "seven"}, exitUsage, "seven"},
	} {
		code, stdout, stderr := runHere(row.args...)
		if code != row.code || !strings.Contains(stdout+stderr, row.want) {
			t.Errorf("%v: exit code %d, want %d with %q:\n%s%s", row.args, code, row.code, row.want, stdout, stderr)
		}
	}
}

// Goal: the file of --config and of TENURE_CONFIG is read, and the flag is stronger.
func TestConfigFile(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"a": "data-dir: /from/a\n", "b": "data-dir: /from/b\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("TENURE_CONFIG", filepath.Join(dir, "a"))
	t.Setenv("TENURE_MAX_SESION", "1")
	if _, out, _ := runHere("config", "check"); !strings.Contains(out, "data-dir: /from/a #") || !strings.Contains(out, "TENURE_MAX_SESION is ignored") || !strings.Contains(out, "did you mean max-sessions?") {
		t.Errorf("environment: %s", out)
	}
	if _, out, _ := runHere("config", "check", "--config", filepath.Join(dir, "b")); !strings.Contains(out, "data-dir: /from/b #") {
		t.Errorf("flag: %s", out)
	}
}
