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
	mu                sync.Mutex
	changed           *sync.Cond
	applied           uint64
	got               []string // data of the entries, one string for each proposal
	indexes           []uint64
	durable           uint64
	disk              []string
	proposed          map[string]int // what the process proposed and was not applied
	received          *receivedState // complete, as if on the disk, and not installed
	sources, installs int            // open ones, and how many there were
	applyErr          error
	flushErr          error
	incomingErr       error
}

func newMachine() *memoryMachine {
	m := &memoryMachine{proposed: map[string]int{}}
	m.changed = sync.NewCond(&m.mu)
	return m
}

// restarted returns the machine as it is after a crash: what was flushed is left.
func (m *memoryMachine) restarted() *memoryMachine {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.flushed()
}

// flushed is restarted with m.mu held.
func (m *memoryMachine) flushed() *memoryMachine {
	n := newMachine()
	n.applied, n.durable = m.durable, m.durable
	n.disk, n.got = slices.Clone(m.disk), slices.Clone(m.disk)
	n.received = m.received
	return n
}

func (m *memoryMachine) Apply(entries []Entry) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.applyErr != nil {
		return 0, m.applyErr
	}
	own := 0
	for _, e := range entries {
		if e.Index != m.applied+1 && m.applied > 0 || e.Index == 0 {
			return 0, fmt.Errorf("entry %d after entry %d", e.Index, m.applied)
		}
		m.applied = e.Index
		m.indexes = append(m.indexes, e.Index)
		for _, p := range unseal(e.Data) {
			m.got = append(m.got, p)
			if m.proposed[p] > 0 {
				m.proposed[p]--
				own++
			}
		}
	}
	m.changed.Broadcast()
	return own, nil
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

// tell proposes p, and lets the machine know it for one of this process.
func tell(r *Replica, p ...string) error {
	m := r.o.Machine.(interface{ expect(n int, p []string) })
	m.expect(1, p)
	var list [][]byte
	for _, one := range p {
		list = append(list, []byte(one))
	}
	err := r.Propose(list...)
	if err != nil {
		m.expect(-1, p)
	}
	return err
}

func (m *memoryMachine) expect(n int, p []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, one := range p {
		m.proposed[one] += n
	}
}

// propose proposes until the queue has room.
func propose(t testing.TB, r *Replica, p string) {
	t.Helper()
	for {
		err := tell(r, p)
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
