package tests

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"golang.org/x/sys/unix"

	"github.com/tenure-dev/tenure/znode"
)

// kazooOps are what testdata/history.py calls the operations.
var kazooOps = map[string]treeOp{"get": treeGet, "set": treeSet, "create": treeCreate, "delete": treeDelete, "count": treeCount}

// kazooLine is a line that it prints.
type kazooLine struct {
	Fault        string // that it has found itself
	Op, Key      string
	Value        string
	Version      int32
	Call, Return int64 // by the clock that all processes share
	Out          string
	OutVersion   int32
	Number       int
	Code         znode.Error
	Unknown      bool
}

// monotonicNow is the clock that all processes of the machine share.
func monotonicNow(t *testing.T) int64 {
	t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		t.Fatal(err)
	}
	return now.Nano()
}

// kazooPython is the interpreter that has kazoo.
func kazooPython(t *testing.T) []string {
	t.Helper()
	return interpreter(t, "import kazoo", []string{"/usr/bin/python3", "-c"}, []string{"python3", "-c"})
}

// kazoo adds to the history what clients of kazoo do for that long. It may be called from
// any goroutine.
func (h *history) kazoo(ctx context.Context, python []string, servers []string, chroot string, seed uint64, clients int, length time.Duration) {
	began := monotonicNow(h.t) - h.now()
	ctx, cancel := context.WithTimeout(ctx, length+time.Minute)
	defer cancel()
	args := append(python[1:len(python)-1:len(python)-1], "testdata/history.py", strings.Join(servers, ","), chroot,
		fmt.Sprint(seed), fmt.Sprint(clients), fmt.Sprint(length.Seconds()))
	cmd := exec.CommandContext(ctx, python[0], args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	if err := cmd.Run(); err != nil {
		h.t.Errorf("history.py: %v\n%s", err, errs.Bytes())
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for lines := bufio.NewScanner(&out); lines.Scan(); {
		var line kazooLine
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			h.t.Errorf("history.py printed %q: %v", lines.Bytes(), err)
			return
		}
		if line.Fault != "" {
			h.t.Errorf("kazoo: %s", line.Fault)
			continue
		}
		if op, ok := line.operation(began); ok {
			op.ClientId = int(h.sources.Add(1)) // its outcome may come late: a client of its own
			h.mu.operations = append(h.mu.operations, op)
			if line.Unknown {
				h.unknown.Add(1)
			}
		}
	}
}

// operation is what the line says, false if it has no effect and no answer.
func (l *kazooLine) operation(began int64) (porcupine.Operation, bool) {
	in := treeInput{op: kazooOps[l.Op], key: l.Key, value: l.Value, version: l.Version}
	op := porcupine.Operation{Input: in, Call: l.Call - began, Return: l.Return - began,
		Output: treeOutput{code: l.Code, value: l.Out, version: l.OutVersion, number: l.Number}}
	if !l.Unknown {
		return op, true
	}
	op.Output, op.Return = treeOutput{unknown: true}, endOfHistory
	return op, in.op == treeSet || in.op == treeCreate || in.op == treeDelete
}
