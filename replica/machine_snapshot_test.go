package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// receivedState is a state that a memoryMachine has received.
type receivedState struct {
	applied uint64
	got     []string
}

// memorySource writes a memoryMachine's state: the applied index, then each string behind its
// length and checksum, then the end.
type memorySource struct {
	receivedState
	m *memoryMachine
}

const memoryEnd = 1<<32 - 1

func (m *memoryMachine) Recover(begins uint64) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.received; r != nil && r.applied == begins {
		m.adopt()
	}
	m.received = nil
	return m.applied, nil
}

func (m *memoryMachine) adopt() {
	m.applied, m.got = m.received.applied, slices.Clone(m.received.got)
	m.durable, m.disk = m.applied, slices.Clone(m.got)
	m.received = nil
}

func (m *memoryMachine) Snapshot() (SnapshotSource, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sources++
	return &memorySource{receivedState{m.applied, slices.Clone(m.got)}, m}, nil
}

func (s *memorySource) Applied() uint64 { return s.applied }

func (s *memorySource) Close() error {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	s.m.sources--
	return nil
}

func (s *memorySource) Write(w io.Writer, from []byte) error {
	begin := uint64(0)
	if from != nil {
		begin = binary.BigEndian.Uint64(from)
	}
	if _, err := w.Write(binary.BigEndian.AppendUint64(nil, s.applied)); err != nil {
		return err
	}
	for _, one := range s.got[begin:] {
		b := binary.BigEndian.AppendUint32(nil, uint32(len(one)))
		b = append(binary.BigEndian.AppendUint32(b, checksum(nil, []byte(one))), one...)
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	_, err := w.Write(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(nil, memoryEnd), uint64(len(s.got))))
	return err
}

// memorySink receives into a memoryMachine.
type memorySink struct {
	m *memoryMachine
	receivedState
	done bool
}

func (m *memoryMachine) Incoming(applied uint64) (SnapshotSink, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.incomingErr != nil {
		return nil, m.incomingErr
	}
	m.received = nil
	return &memorySink{m: m, receivedState: receivedState{applied: applied}}, nil
}

func (s *memorySink) Position() []byte {
	if len(s.got) == 0 {
		return nil
	}
	return binary.BigEndian.AppendUint64(nil, uint64(len(s.got)))
}

func (s *memorySink) Receive(r io.Reader) error {
	var b [8]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return err
	}
	if applied := binary.BigEndian.Uint64(b[:]); applied != s.applied {
		return fmt.Errorf("a state as of %d, not %d", applied, s.applied)
	}
	for {
		if _, err := io.ReadFull(r, b[:4]); err != nil {
			return err
		}
		n := binary.BigEndian.Uint32(b[:4])
		if n == memoryEnd {
			break
		}
		if _, err := io.ReadFull(r, b[:4]); err != nil {
			return err
		}
		one := make([]byte, min(n, 1<<20))
		if _, err := io.ReadFull(r, one); err != nil {
			return err
		}
		if checksum(nil, one) != binary.BigEndian.Uint32(b[:4]) {
			return errors.New("a wrong checksum")
		}
		s.got = append(s.got, string(one))
	}
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return err
	}
	if n := binary.BigEndian.Uint64(b[:]); n != uint64(len(s.got)) {
		return fmt.Errorf("%d strings, not %d", len(s.got), n)
	}
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	s.done, s.m.received = true, &s.receivedState
	return nil
}

func (s *memorySink) Discard() error {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	if s.done {
		s.m.received = nil
	}
	return nil
}

func (m *memoryMachine) Install(applied uint64, restarted func(origin uint64)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.received == nil || m.received.applied != applied {
		return fmt.Errorf("no state as of %d was received: %+v", applied, m.received)
	}
	m.adopt()
	m.installs++
	clear(m.proposed)
	restarted(uint64(m.installs))
	m.changed.Broadcast()
	return nil
}
