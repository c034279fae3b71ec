package replica

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.etcd.io/raft/v3/raftpb"
)

// startShort starts n members whose logs keep little, unless tune says otherwise: some entries,
// so that none falls behind that only is a moment late.
func startShort(t *testing.T, n int, tune func(*Options)) *cluster {
	c := &cluster{t: t, lan: newLAN(), members: map[uint64]*clusterMember{}, voters: map[uint64]string{}}
	c.tune = func(o *Options) {
		o.FlushBytes, o.KeepBytes, o.LagBytes, o.SnapshotRate = 1<<10, 4<<10, 4<<10, -1
		if tune != nil {
			tune(o)
		}
	}
	for id := uint64(1); id <= uint64(n); id++ {
		c.voters[id] = fmt.Sprintf("member-%d:1", id)
	}
	c.startAll()
	return c
}

// startLagging starts three members; one, id, is cut off and lacks n numbers of life a.
func startLagging(t *testing.T, n int, tune func(*Options)) (c *cluster, leader *clusterMember, s sent, id uint64) {
	t.Helper()
	c = startShort(t, 3, tune)
	leader, s = c.leader(), sent{}
	id = c.others(leader)[0].o.ID
	c.lan.isolate(id, true)
	s.fill(t, leader, "a", n)
	return c, leader, s, id
}

// others returns the members that do not lead.
func (c *cluster) others(leader *clusterMember) []*clusterMember {
	var list []*clusterMember
	for _, m := range c.members {
		if m != leader {
			list = append(list, m)
		}
	}
	slices.SortFunc(list, func(a, b *clusterMember) int { return int(a.o.ID) - int(b.o.ID) })
	return list
}

// fill proposes n numbers through m, most of them in an entry of its own, and waits until
// they are applied there and the log is truncated.
func (s sent) fill(t *testing.T, m *clusterMember, life string, n int) {
	t.Helper()
	for range n {
		s.tell(t, m, life)
		m.machine.wait(func(got []string) bool { return len(got) > 0 && got[len(got)-1] == fmt.Sprint(life, " ", s[life]-1) })
	}
	synctest.Wait()
}

// sum adds up a figure of all members.
func (c *cluster) sum(figure func(Stats) int64) (sum int64) {
	for _, m := range c.members {
		sum += figure(m.Stats())
	}
	return sum
}

func sentSnapshots(s Stats) int64 { return s.SnapshotsSent }

// noneOpen fails if a member keeps a state open that nobody needs.
func (c *cluster) noneOpen() {
	c.t.Helper()
	time.Sleep(resumable + settling)
	for id, m := range c.members {
		m.machine.mu.Lock()
		open := m.machine.sources
		m.machine.mu.Unlock()
		m.log.mu.Lock()
		held := len(m.log.mu.lag.snapshots)
		m.log.mu.Unlock()
		if open+held > 0 {
			c.t.Errorf("member %d has %d states open, and holds the log for %d members", id, open, held)
		}
	}
}

// Goal: a member that was away for longer than the log reaches back gets the state, goes on
// from there, serves barriers and proposals, also after another restart; nobody else
// notices. Method: cut it off, or end its process; write; let it come back.
func TestLaggingMemberGetsSnapshot(t *testing.T) {
	for _, restart := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := startShort(t, 3, nil)
			defer c.stop()
			leader, s := c.leader(), sent{}
			for range 100 { // nobody lags yet
				s.tell(t, leader, "a")
				c.check(s)
			}
			id := c.others(leader)[0].o.ID
			if restart {
				killed := c.kill(id)
				s.fill(t, leader, "a", 400)
				c.start(id, killed.fs, killed.machine.restarted())
			} else {
				c.lan.isolate(id, true)
				s.fill(t, leader, "a", 400)
				c.lan.isolate(id, false)
			}
			c.check(s)
			m := c.members[id]
			synctest.Wait()
			if got := m.Stats(); got.SnapshotsReceived != 1 || m.machine.installs != 1 || c.sum(sentSnapshots) != 1 {
				t.Fatalf("received %d, installed %d, sent %d", got.SnapshotsReceived, m.machine.installs, c.sum(sentSnapshots))
			}
			s.tell(t, m, "b")
			if err := barrier(m.Replica); err != nil {
				t.Fatal(err)
			}
			c.check(s)
			killed := c.kill(id)
			c.start(id, killed.fs, killed.machine.restarted())
			s.fill(t, leader, "a", 10)
			c.check(s)
			if n := c.members[id].Stats().SnapshotsReceived; n != 0 {
				t.Errorf("it needed %d more snapshots", n)
			}
			c.noneOpen()
		})
	}
}

// Goal: the leader keeps what a member lacks, up to a bound, so that a short absence costs no
// snapshot; a longer one does. Method: cut one off while more and less than the bound is
// written.
func TestLogIsKeptForLaggingMembers(t *testing.T) {
	for _, c := range []struct {
		writes    int
		snapshots int64
	}{{100, 0}, {1000, 1}} {
		synctest.Test(t, func(t *testing.T) {
			cl, leader, s, id := startLagging(t, c.writes, func(o *Options) { o.LagBytes = 32 << 10 })
			defer cl.stop()
			// Within the bound: about what it is, and one more flush.
			if bytes := leader.Status().LogBytes; bytes > 40<<10 {
				t.Errorf("%d writes: the log has %d bytes", c.writes, bytes)
			}
			cl.lan.isolate(id, false)
			cl.check(s)
			synctest.Wait()
			if n := cl.sum(sentSnapshots); n != c.snapshots {
				t.Errorf("%d writes: %d snapshots, want %d", c.writes, n, c.snapshots)
			}
			eventually(t, "the log is short again once it is known that everybody is there", func() bool {
				s.fill(t, leader, "a", 30)
				return leader.Status().LogBytes <= 8<<10
			})
		})
	}
}

// Goal: whatever bit of a stream is flipped, no wrong state is installed, and the member gets
// the right one in the end. Method: flip one in the first stream of each run, at places that
// cover hello, state and end.
func TestDamagedSnapshotIsNotInstalled(t *testing.T) {
	runs := 0
	for at, flipped := 0, true; flipped; at += 37 {
		synctest.Test(t, func(t *testing.T) {
			c, _, s, id := startLagging(t, 80, nil)
			defer c.stop()
			pos := 0
			flipped = false
			c.lan.streams = func(_, _ uint64, s Stream) Stream {
				time.AfterFunc(30*time.Second, func() { s.Close() }) // as the network does without progress
				return &wire{s, func(b []byte) (int, error) {
					if !flipped && pos+len(b) > at {
						flipped = true
						b = bytes.Clone(b)
						b[at-pos] ^= 1 << (at % 8)
					}
					pos += len(b)
					return s.Write(b)
				}}
			}
			c.lan.isolate(id, false)
			c.check(s)
			if n := c.members[id].machine.installs; n != 1 {
				t.Fatalf("installed %d times", n)
			}
		})
		if t.Failed() {
			t.Fatalf("flipped at byte %d", at)
		}
		runs++
	}
	if runs < 20 {
		t.Errorf("only %d bits", runs)
	}
}

// Goal: a slow snapshot under writes is one snapshot, not the first of many: the log behind
// it is kept for the member meanwhile; nobody is elected (C113). Method: a rate that makes
// it take long; writes that truncate the log again and again while it is sent.
func TestC113SnapshotUnderWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, leader, s, id := startLagging(t, 1000, func(o *Options) { o.SnapshotRate = 4 << 10 })
		defer c.stop()
		c.lan.isolate(id, false)
		term, began := leader.Status().Term, time.Now()
		m := c.members[id]
		for m.Stats().SnapshotsReceived == 0 {
			s.tell(t, leader, "a")
			time.Sleep(10 * time.Millisecond)
		}
		took := time.Since(began)
		c.check(s)
		if took < 2*time.Second {
			t.Errorf("it took %v: too quick for the rate", took)
		}
		if n := c.sum(sentSnapshots); n != 1 {
			t.Errorf("%d snapshots were sent", n)
		}
		if now := c.leader().Status().Term; now != term {
			t.Errorf("term %d, it was %d: there were elections", now, term)
		}
		c.noneOpen()
		s.fill(t, leader, "a", 100)
		if bytes := leader.Status().LogBytes; bytes > 16<<10 {
			t.Errorf("the log still has %d bytes", bytes)
		}
	})
}

// Goal: a receiver that does not read holds nobody up (C139): proposals are committed and
// applied; at most two snapshots are sent at once; and all members get there once they
// read. Method: seven members, of which three are cut off; their streams block.
func TestC139BlockedReceiverHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startShort(t, 7, nil)
		defer c.stop()
		leader, s := c.leader(), sent{}
		lagging := c.others(leader)[:3]
		for _, m := range lagging {
			c.lan.isolate(m.o.ID, true)
		}
		s.fill(t, leader, "a", 200)
		unblock := make(chan struct{})
		var begun atomic.Int64
		c.lan.streams = func(_, _ uint64, s Stream) Stream {
			begun.Add(1)
			return &wire{s, func(b []byte) (int, error) {
				<-unblock
				return s.Write(b)
			}}
		}
		for _, m := range lagging {
			c.lan.isolate(m.o.ID, false)
		}
		time.Sleep(2 * time.Second)
		s.fill(t, leader, "a", 500)
		for _, m := range lagging {
			if n := m.Stats().Applied; n > 100 {
				t.Errorf("member %d has applied %d entries without a snapshot", m.o.ID, n)
			}
		}
		if n := begun.Load(); n != sendsMax {
			t.Errorf("%d snapshots at once, want %d", n, sendsMax)
		}
		close(unblock)
		c.check(s)
	})
}

// Goal: proposals of the member that gets a snapshot are forgotten, as their fate is unknown,
// and none is applied twice; those from after it are applied once and in order, without
// waiting. Method: propose on a member that is cut off, let it get a snapshot, propose
// again, many times.
func TestProposalsBeforeSnapshotAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startShort(t, 3, nil)
		defer c.stop()
		leader, s := c.leader(), sent{}
		id := c.others(leader)[0].o.ID
		var ended []string
		for round := range 5 {
			c.lan.isolate(id, true)
			life := fmt.Sprint("cut", round)
			for range 20 {
				s.tell(t, c.members[id], life)
			}
			ended = append(ended, life)
			s.fill(t, leader, "a", 300)
			c.lan.isolate(id, false)
			m := c.members[id]
			eventually(t, "a snapshot", func() bool {
				m.machine.mu.Lock()
				defer m.machine.mu.Unlock()
				return m.machine.installs == round+1
			})
			for range 20 {
				s.tell(t, m, fmt.Sprint("back", round))
			}
			c.check(s, ended...)
			time.Sleep(time.Second) // the leader need not keep its log for it any more
		}
	})
}

// Goal: a member with an empty log joins by a snapshot, as a learner, knows all members from it,
// and goes on after a restart. Method: add it to three that have cut their logs.
func TestJoinBySnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startShort(t, 3, nil)
		defer c.stop()
		leader, s := c.leader(), sent{}
		s.fill(t, leader, "a", 300)
		founders := c.tune
		c.tune = func(o *Options) {
			founders(o)
			o.Join = true
		}
		c.start(4, vfs.NewMem(), newMachine())
		c.change(leader.o.ID, Step{Kind: AddLearner, ID: 4, Address: "member-4:1"})
		c.check(s)
		synctest.Wait() // until its loop knows what the machine does
		m := c.members[4]
		if st := m.Status(); !st.IsLearner || m.Stats().SnapshotsReceived != 1 {
			t.Fatalf("%+v, %d snapshots", st, m.Stats().SnapshotsReceived)
		}
		if got, want := describe(c.agree()), "1v@member-1:1 2v@member-2:1 3v@member-3:1 4l@member-4:1"; got != want {
			t.Errorf("members %s, want %s", got, want)
		}
		killed := c.kill(4)
		s.tell(t, c.start(4, killed.fs, killed.machine.restarted()), "b")
		c.check(s)
		c.noneOpen()
	})
}

// Goal: a newer stream takes the place of one that does not get on; Close ends a stream that is
// being served; what is not taken is refused with the reason: an unknown format, an earlier
// term, a state that leaves this member out, one for which there is no room. Method: streams by
// hand.
func TestStreamsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startShort(t, 3, nil)
		leader, s := c.leader(), sent{}
		s.fill(t, leader, "a", 100)
		c.check(s)
		m := c.others(leader)[0]
		message := func(term uint64, voters ...uint64) *raftpb.Message {
			return &raftpb.Message{Type: raftpb.MsgSnap.Enum(), Term: new(term), Snapshot: &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
				Index: new(uint64(9999)), Term: new(uint64(1)), ConfState: &raftpb.ConfState{Voters: voters}}}}
		}
		piece := func(number uint64, message *raftpb.Message) []byte {
			var b bytes.Buffer
			if err := writeHello(&b, hello{number, message}); err != nil {
				t.Fatal(err)
			}
			return b.Bytes()
		}
		open := func(hello []byte) (Stream, byte, error) {
			near, far := newPipe()
			go func() {
				m.ReceiveStream(leader.o.ID, far)
				far.Close()
			}()
			if _, err := near.Write(hello); err != nil {
				t.Fatal(err)
			}
			kind, _, err := readAnswer(near)
			return near, kind, err
		}
		refused := func(hello []byte, why string) {
			t.Helper()
			if _, _, err := open(hello); !errors.Is(err, errRefused) || !strings.Contains(err.Error(), why) {
				t.Errorf("%v, want %q", err, why)
			}
		}
		term := leader.Status().Term
		var unknown bytes.Buffer
		if err := writePiece(&unknown, []byte{9, 1}); err != nil {
			t.Fatal(err)
		}
		refused(unknown.Bytes(), "format 9, this program knows 1")
		refused(piece(1, message(term-1, 1, 2, 3)), "is in term")
		refused(piece(1, message(term, 8, 9)), "no member")
		noRoom := func(err error) {
			m.machine.mu.Lock()
			defer m.machine.mu.Unlock()
			m.machine.incomingErr = err
		}
		noRoom(errors.New("no space left on device"))
		refused(piece(1, message(term, 1, 2, 3)), "no space left on device")
		noRoom(nil)
		first, kind, err := open(piece(1, message(term, 1, 2, 3)))
		if err != nil || kind != answerContinue {
			t.Fatalf("answer %d, %v", kind, err)
		}
		second, kind, err := open(piece(2, message(term, 1, 2, 3)))
		if err != nil || kind != answerContinue {
			t.Fatalf("a newer stream: answer %d, %v", kind, err)
		}
		if _, err := first.Write([]byte("x")); err == nil {
			t.Error("the older stream still is served")
		}
		c.stop() // ends although second is open
		if _, err := second.Write([]byte("x")); err == nil {
			t.Error("a stream is served after Close")
		}
	})
}

// Goal: what is no hello or answer is refused with a reason and without much memory. Method:
// cut, flip and lengthen sound ones.
func TestStreamPieces(t *testing.T) {
	var sound bytes.Buffer
	m := &raftpb.Message{Type: raftpb.MsgSnap.Enum(), Term: new(uint64(3)), Snapshot: &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
		Index: new(uint64(9)), Term: new(uint64(2)), ConfState: &raftpb.ConfState{Voters: []uint64{1}}}}}
	if err := writeHello(&sound, hello{77, m}); err != nil {
		t.Fatal(err)
	}
	if h, err := readHello(bytes.NewReader(sound.Bytes())); err != nil || h.number != 77 || h.message.GetTerm() != 3 {
		t.Fatalf("%+v, %v", h, err)
	}
	for i := range sound.Len() {
		if _, err := readHello(bytes.NewReader(sound.Bytes()[:i])); err == nil {
			t.Errorf("the first %d bytes pass", i)
		}
		flipped := bytes.Clone(sound.Bytes())
		flipped[i] ^= 1 << rand.IntN(8)
		if _, err := readHello(bytes.NewReader(flipped)); err == nil {
			t.Errorf("a flipped bit in byte %d passes", i)
		}
	}
	huge := []byte{0, 0, 0, 0x7f, 1, 2, 3, 4}
	if _, err := readHello(bytes.NewReader(huge)); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("2 GiB: %v", err)
	}
	for _, body := range [][]byte{nil, {0}, {9}, {streamFormat}, {streamFormat, 1}, {2, 1}} {
		var b bytes.Buffer
		if err := writePiece(&b, body); err != nil {
			t.Fatal(err)
		}
		if h, err := readHello(bytes.NewReader(b.Bytes())); err == nil {
			t.Errorf("hello %x passes: %+v", body, h)
		}
		if len(body) != 2 && !slices.Equal(body, []byte{1}) {
			if _, _, err := readAnswer(&b); err == nil {
				t.Errorf("answer %x passes", body)
			}
		}
	}
}
