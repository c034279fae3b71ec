package recipes_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tenure-dev/tenure/recipes"
)

func openFile(t *testing.T, path string) *recipes.FileHighWater {
	t.Helper()
	h, err := recipes.OpenFileHighWater(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() }) // it may be closed already
	return h
}

// raise raises and demands the result.
func raise(t *testing.T, h recipes.HighWater, key string, token, want recipes.Token) {
	t.Helper()
	if got, err := h.Raise(t.Context(), key, token); err != nil || got != want {
		t.Errorf("Raise(%q, %d) = %d, %v; want %d", key, token, got, err, want)
	}
}

// Goal: marks of many keys outlast the process, and one process at a time has the file.
// Method: raise, open again while open and after closing.
func TestFenceFileRemembers(t *testing.T) {
	path := t.TempDir() + "/tokens"
	h := openFile(t, path)
	for i := range 100 {
		raise(t, h, fmt.Sprintf("/svc/%d \"ü\"", i), recipes.Token(i+1)<<40, recipes.Token(i+1)<<40)
	}
	raise(t, h, "/top", 1<<64-1, 1<<64-1)
	if _, err := recipes.OpenFileHighWater(path); !errors.Is(err, recipes.ErrFenceLocked) {
		t.Errorf("opened twice: %v", err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Raise(t.Context(), "/new", 1); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("raised after Close: %v", err)
	}
	h = openFile(t, path)
	for i := range 100 {
		raise(t, h, fmt.Sprintf("/svc/%d \"ü\"", i), 1, recipes.Token(i+1)<<40)
	}
	raise(t, h, "/top", 1, 1<<64-1)
	raise(t, h, "/unknown", 1, 1)
}

// Goal: a raise to a mark that stands costs no I/O, and raises that come together share
// one writing. Method: count the syncs; hold one writing while twenty more raises come.
func TestFenceFileSyncsOncePerNews(t *testing.T) {
	var mu sync.Mutex
	syncs, gate, held := 0, make(chan struct{}), make(chan struct{})
	hold := false
	h, err := recipes.OpenFileHighWaterSteps(t.TempDir()+"/tokens", func(name string) error {
		mu.Lock()
		stop := hold && name == "sync"
		if name == "sync" {
			syncs++
			hold = false
		}
		mu.Unlock()
		if stop {
			close(held)
			<-gate
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	raise(t, h, "/a", 5, 5)
	mu.Lock()
	before := syncs
	hold = true
	mu.Unlock()
	raise(t, h, "/a", 5, 5)
	raise(t, h, "/a", 4, 5)
	var all sync.WaitGroup
	all.Go(func() { raise(t, h, "/first", 1, 1) })
	<-held
	if syncs != before+1 {
		t.Errorf("%d syncs for old news", syncs-before-1)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for i := range 20 { // each leaves its mark to whoever writes next
		if _, err := h.Raise(ended, fmt.Sprintf("/later/%d", i), 7); !errors.Is(err, context.Canceled) {
			t.Errorf("waiting for the disk does not end with ctx: %v", err)
		}
	}
	close(gate)
	all.Wait()
	raise(t, h, "/b", 1, 1)
	for i := range 20 {
		raise(t, h, fmt.Sprintf("/later/%d", i), 7, 7)
	}
	if syncs != before+2 {
		t.Errorf("%d syncs for one writing and the next, want 2", syncs-before)
	}
}

// Goal: damage is named and never taken for "nothing seen yet". Method: flip every bit
// and cut at every length; remove the file; all must be refused, and the whole file must
// be accepted.
func TestFenceFileNamesDamage(t *testing.T) {
	path := t.TempDir() + "/tokens"
	h := openFile(t, path)
	raise(t, h, "/svc/leader", 4294967297, 4294967297)
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	refused := func(what string, text []byte) {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		h, err := recipes.OpenFileHighWater(path)
		if err == nil {
			_ = h.Close() // the failure is reported below
		}
		if !errors.Is(err, recipes.ErrFenceDamaged) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for i := range len(whole) * 8 {
		text := bytes.Clone(whole)
		text[i/8] ^= 1 << (i % 8)
		refused(fmt.Sprintf("bit %d flipped", i), text)
	}
	for n := range len(whole) {
		refused(fmt.Sprintf("cut to %d bytes", n), whole[:n])
	}
	refused("zeros behind it", append(bytes.Clone(whole), 0, 0))
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := recipes.OpenFileHighWater(path); !errors.Is(err, recipes.ErrFenceDamaged) {
		t.Errorf("a file that vanished: %v", err)
	}
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	raise(t, openFile(t, path), "/svc/leader", 1, 4294967297)
}

// fenceSteps are the steps of one raise, in order.
var fenceSteps = []string{"write", "write the rest", "sync", "rename", "sync the directory", "close"}

// Goal: a step that fails admits nothing that a crash could forget, and nothing after a
// failed sync. Method: fail at each step; the mark must not be reported; open again.
func TestFenceFileFailsAtEachStep(t *testing.T) {
	for i, step := range fenceSteps {
		path, broken, armed := t.TempDir()+"/tokens", errors.New("no space"), false
		h, err := recipes.OpenFileHighWaterSteps(path, func(name string) error {
			if armed && name == step {
				return broken
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		raise(t, h, "/a", 5, 5)
		armed = true
		if _, err := h.Raise(t.Context(), "/a", 6); !errors.Is(err, broken) {
			t.Errorf("%s failed: %v", step, err)
		}
		armed = false
		if i < 2 { // nothing but the temporary file was touched
			raise(t, h, "/a", 5, 5)
			raise(t, h, "/a", 6, 6)
		} else if _, err := h.Raise(t.Context(), "/a", 5); !errors.Is(err, broken) {
			t.Errorf("%s failed, then: %v", step, err)
		}
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
		got, err := openFile(t, path).Raise(t.Context(), "/a", 1)
		if err != nil || got != 5 && got != 6 {
			t.Errorf("%s failed, opened again: %d, %v", step, got, err)
		}
	}
}

// Goal: kill -9 at any point forgets nothing that was admitted and makes nothing up.
// Method: a child raises tokens and reports each; it kills itself before a step of its
// n-th raise, or is killed from outside at some point; then the file must be whole, at
// least at the last reported mark and at most at the one begun.
func TestFenceFileSurvivesKill(t *testing.T) {
	path, last := t.TempDir()+"/tokens", recipes.Token(0)
	for round := range 50 {
		step := ""
		if round%8 < len(fenceSteps)+1 {
			step = append(fenceSteps, "remember")[round%8] // else from outside
		}
		begun, done := runFenceChild(t, path, step, 1+round%5)
		h := openFile(t, path)
		got, err := h.Raise(t.Context(), "/a", 1)
		if err != nil {
			t.Fatalf("round %d, killed at %q: %v", round, step, err)
		}
		if done = max(done, last, 1); got < done || got > max(begun, done) {
			t.Fatalf("round %d, killed at %q: at %d, but %d was admitted and %d begun", round, step, got, done, begun)
		}
		last = got
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if last < 50 {
		t.Errorf("only %d raises in 50 rounds: nothing was tested", last)
	}
}

// runFenceChild runs TestFenceFileChild until it is killed and returns the last token
// that it began to raise and the last that it had raised.
func runFenceChild(t *testing.T, path, step string, n int) (begun, done recipes.Token) {
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFenceFileChild$")
	child.Env = append(os.Environ(), "FENCE_CHILD="+path, "FENCE_STEP="+step, fmt.Sprintf("FENCE_AFTER=%d", n))
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	lines := 0
	for scan := bufio.NewScanner(out); scan.Scan(); lines++ {
		var what string
		var token recipes.Token
		if _, err := fmt.Sscan(scan.Text(), &what, &token); err != nil {
			t.Errorf("the child says %q", scan.Text())
		}
		if what == "begin" {
			begun = token
		} else {
			done = token
		}
		if step == "" && lines == n*7 {
			_ = child.Process.Kill() // it may be read to the end anyway
		}
	}
	err = child.Wait()
	if status, ok := child.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Fatalf("the child was not killed: %v", err)
	}
	return begun, done
}

// TestFenceFileChild is the process that TestFenceFileSurvivesKill kills.
func TestFenceFileChild(t *testing.T) {
	path := os.Getenv("FENCE_CHILD")
	if path == "" {
		return
	}
	var after int
	if _, err := fmt.Sscan(os.Getenv("FENCE_AFTER"), &after); err != nil {
		t.Fatal(err)
	}
	raises := 0
	h, err := recipes.OpenFileHighWaterSteps(path, func(name string) error {
		isTime := raises == after || name == "remember" && os.Getenv("FENCE_STEP") == "remember"
		if name == os.Getenv("FENCE_STEP") && isTime {
			return syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	token, err := h.Raise(t.Context(), "/a", 1)
	for raises = 1; err == nil; raises++ {
		fmt.Println("begin", token+1)
		token, err = h.Raise(t.Context(), "/a", token+1)
		fmt.Println("done", token)
	}
	t.Fatal(err)
}
