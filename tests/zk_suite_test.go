//go:build unix

package tests

import (
	"bytes"
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// suiteMax bounds what a foreign suite may take: twice what it does on a busy machine.
const suiteMax = 5 * time.Minute

// suiteResult is what a foreign suite says of its tests, or of one that was run in parts.
type suiteResult struct {
	passed int
	failed map[string]string // by name: what it said
}

// wants fails the test unless exactly so many tests passed and none failed.
func (r *suiteResult) wants(t *testing.T, passed int, leftOut map[string]string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(r.failed)) {
		t.Errorf("%s did not pass:\n%s", name, r.failed[name])
	}
	if r.passed != passed {
		t.Errorf("%d tests passed, want %d", r.passed, passed)
	}
	t.Logf("%d run, %d passed, %d left out", r.passed+len(r.failed), r.passed, len(leftOut))
	for _, name := range slices.Sorted(maps.Keys(leftOut)) {
		t.Logf("left out: %s: %s", name, leftOut[name])
	}
}

// serverProgram returns a directory with a program of this name that starts tenured as
// the suites start ZooKeeper.
func serverProgram(t *testing.T, name string) (dir string) {
	t.Helper()
	script, err := filepath.Abs("testdata/suites/server.sh")
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	if err := os.Symlink(script, filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// runSuite runs a suite with additions to the environment and returns what it printed. Its
// exit code is no error: the suite's results say what failed.
func runSuite(t *testing.T, env []string, command ...string) (stdout, stderr string) {
	ctx, cancel := context.WithTimeout(t.Context(), suiteMax)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "TENURE_") })
	cmd.Env = append(cmd.Env, env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	// The servers that it starts end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Run(); err != nil {
		t.Logf("%v: %v", command, err)
		if cmd.Process != nil {
			cmd.Cancel() // an error says that none is left
		}
	}
	return out.String(), errs.String()
}
