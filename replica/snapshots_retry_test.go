package replica

import (
	"bytes"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// wire lets a test look at and change what a member writes to a stream.
type wire struct {
	Stream
	write func(b []byte) (int, error)
}

func (w *wire) Write(b []byte) (int, error) { return w.write(b) }

// Goal: a stream that breaks in the middle goes on where it broke, however often and however long
// it took. Method: each stream breaks after a quarter of the state, late; count all bytes.
func TestSnapshotGoesOnWhereItBroke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, leader, s, id := startLagging(t, 1000, nil)
		defer c.stop()
		var whole bytes.Buffer
		source, err := leader.machine.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(source.Write(&whole, nil), source.Close()); err != nil {
			t.Fatal(err)
		}
		var streams, written atomic.Int64
		c.lan.streams = func(_, _ uint64, s Stream) Stream {
			streams.Add(1)
			left := whole.Len() / 4
			return &wire{s, func(b []byte) (int, error) {
				if left -= len(b); left < 0 {
					time.Sleep(resumable)
					s.Close()
					return 0, io.ErrClosedPipe
				}
				written.Add(int64(len(b)))
				return s.Write(b)
			}}
		}
		c.lan.isolate(id, false)
		c.check(s)
		if n := streams.Load(); n < 4 || n > 6 {
			t.Errorf("%d streams", n)
		}
		if n := int(written.Load()); n > whole.Len()+whole.Len()/10 {
			t.Errorf("%d bytes were written for a state of %d", n, whole.Len())
		}
		synctest.Wait()
		if n := c.sum(sentSnapshots); n != 1 {
			t.Errorf("%d snapshots were sent", n)
		}
	})
}

// refusing is a stream whose other end refuses everything.
type refusing struct {
	Stream
	answer bytes.Buffer
}

func (r *refusing) Write(b []byte) (int, error) { return len(b), nil }

func (r *refusing) Read(b []byte) (int, error) {
	if r.answer.Len() == 0 {
		if err := writeAnswer(&r.answer, answerRefuse, []byte("busy")); err != nil {
			return 0, err
		}
	}
	return r.answer.Read(b)
}

// Goal: a member that refused snapshots, be it for many minutes, as its disk was full, gets the
// next: what was refused does not count against it. Method: refuse the first 80.
func TestSnapshotAfterRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, s, id := startLagging(t, 80, nil)
		defer c.stop()
		const refused = 80
		streams := 0
		c.lan.streams = func(_, _ uint64, s Stream) Stream {
			switch streams++; {
			case streams > refused+20:
				panic("the snapshot is begun again and again")
			case streams <= refused:
				return &refusing{Stream: s}
			}
			return s
		}
		c.lan.isolate(id, false)
		c.check(s)
		if n := c.members[id].machine.installs; n != 1 || streams != refused+1 {
			t.Errorf("%d installed of %d streams", n, streams)
		}
	})
}

// Goal: a member that no stream reaches does not make the leader keep its log and a state for
// ever; it gets the state once streams come through. Method: streams that fail at once, for longer
// than a snapshot is kept, under writes.
func TestFailingStreamsHoldNoLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, leader, s, id := startLagging(t, 80, nil)
		defer c.stop()
		var through atomic.Bool
		c.lan.streams = func(_, _ uint64, s Stream) Stream {
			if !through.Load() {
				s.Close()
			}
			return s
		}
		c.lan.isolate(id, false)
		var applied [3]uint64
		for half := range applied {
			for range 5 {
				time.Sleep(resumable / 10)
				s.fill(t, leader, "a", 20)
			}
			applied[half] = leader.Status().Applied
		}
		if first := leader.Status().First; first <= applied[0] {
			t.Errorf("the log begins with entry %d, behind what was applied at %v", first, applied)
		}
		through.Store(true)
		c.check(s)
		c.noneOpen()
	})
}

// Goal: a stream with a small rate is never silent for long, which would end it. Method: much is
// written at once; what comes of it when.
func TestSmallRateIsKeptEvenly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, last, longest, bytes := time.Now(), time.Now(), time.Duration(0), 0
		to := &wire{nil, func(b []byte) (int, error) {
			longest, last = max(longest, time.Since(last)), time.Now()
			bytes += len(b)
			return len(b), nil
		}}
		r := &Replica{o: Options{SnapshotRate: 1 << 10}}
		w := &pacedWriter{w: to, r: r, o: &outgoing{ctx: t.Context()}}
		if n, err := w.Write(make([]byte, 64<<10)); err != nil || n != 64<<10 || bytes != n {
			t.Errorf("%d bytes written, %d came, %v", n, bytes, err)
		}
		if took := time.Since(began); took < 60*time.Second || took > 64*time.Second || longest > time.Second {
			t.Errorf("it took %v, with a silence of %v", took, longest)
		}
	})
}
