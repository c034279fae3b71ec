package replica

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
)

// memoryMachine is a state machine that remembers everything: what it applied in this
// life, and, as if on a disk of its own, what it had applied at its last flush.
type memoryMachine struct {
	mu       sync.Mutex
	changed  *sync.Cond
	applied  uint64
	got      []string // data of the entries, one string for each proposal
	indexes  []uint64
	durable  uint64
	disk     []string
	applyErr error
	flushErr error
}

func newMachine() *memoryMachine {
	m := &memoryMachine{}
	m.changed = sync.NewCond(&m.mu)
	return m
}

// restarted returns the machine as it is after a crash: what was flushed is left.
func (m *memoryMachine) restarted() *memoryMachine {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := newMachine()
	n.applied, n.durable = m.durable, m.durable
	n.disk, n.got = slices.Clone(m.disk), slices.Clone(m.disk)
	return n
}

func (m *memoryMachine) Apply(entries []Entry) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.applyErr != nil {
		return m.applyErr
	}
	for _, e := range entries {
		if e.Index != m.applied+1 && m.applied > 0 || e.Index == 0 {
			return fmt.Errorf("entry %d after entry %d", e.Index, m.applied)
		}
		m.applied = e.Index
		m.indexes = append(m.indexes, e.Index)
		m.got = append(m.got, unseal(e.Data)...)
	}
	m.changed.Broadcast()
	return nil
}

func (m *memoryMachine) Applied() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.applied
}

func (m *memoryMachine) Flush() (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.flushErr != nil {
		return 0, m.flushErr
	}
	m.durable, m.disk = m.applied, slices.Clone(m.got)
	return m.durable, nil
}

// wait blocks until ok is true of what was applied.
func (m *memoryMachine) wait(ok func(got []string) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for !ok(m.got) {
		m.changed.Wait()
	}
}

func (m *memoryMachine) snapshot() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.got)
}

// sealTest is the Seal of the tests: proposals with a length before each.
func sealTest(dst []byte, proposals [][]byte) []byte {
	for _, p := range proposals {
		dst = binary.AppendUvarint(dst, uint64(len(p)))
		dst = append(dst, p...)
	}
	return dst
}

func unseal(data []byte) []string {
	var out []string
	for len(data) > 0 {
		n, w := binary.Uvarint(data)
		out = append(out, string(data[w:w+int(n)]))
		data = data[w+int(n):]
	}
	return out
}

func mustOpen(t testing.TB, dir string, o Options) *Replica {
	t.Helper()
	if o.Seal == nil {
		o.Seal = sealTest
	}
	if o.Tick == 0 {
		o.Tick = 10 * time.Millisecond
	}
	r, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// barrier waits for a barrier.
func barrier(r *Replica) error {
	done := make(chan error, 1)
	r.Barrier(func(err error) { done <- err })
	return <-done
}

// propose proposes until the queue has room.
func propose(t testing.TB, r *Replica, p string) {
	t.Helper()
	for {
		err := r.Propose([]byte(p))
		if err == nil {
			return
		}
		if err != ErrBusy {
			t.Fatal(err)
		}
		if err := barrier(r); err != nil {
			t.Fatal(err)
		}
	}
}
