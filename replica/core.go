package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

const (
	// electionTicks is after how many ticks without a leader a member campaigns, and
	// heartbeatTicks how often a leader shows that it lives.
	electionTicks  = 10
	heartbeatTicks = 1
	// messageBytesMax bounds the entries in one message to a peer, inflightMessages
	// and inflightBytes what may be on the way to one peer.
	messageBytesMax  = 1 << 20
	inflightMessages = 256
	inflightBytes    = 16 << 20
	// applyBytesMax bounds the entries that are handed out and not yet applied.
	applyBytesMax = 16 << 20
)

// core is one member's Raft: synchronous, without goroutines, clock or I/O other than
// reads from the log. Inputs are ticks, proposals, read requests, messages and the
// responses that come with what storage has done; outputs are collected by ready. It
// may be used by one goroutine at a time.
type core struct {
	id   uint64
	node *raft.RawNode

	// As of the last call of ready.
	role     raft.StateType
	leader   uint64
	term     uint64
	commit   uint64
	conf     conf
	ownStart uint64 // index of the first entry of this member's term as leader, 0 before it is known
	// forgot: leader was changed behind Raft's back, which does not tell of it if it changes
	// back before the next call of ready.
	forgot bool
	// proposedConf is the number of the newest change of members among this leader's entries.
	proposedConf uint64
	// departed is how far the log of each member that a change removed was known to be.
	departed map[uint64]uint64

	// reads wait until an entry of the leader's own term is committed: before, the
	// commit index that a restarted member knows may be older than what it had
	// acknowledged. Bounded by the caller, which has one request outstanding.
	reads [][]byte
	// deferred holds responses to messages of storage that go to peers.
	deferred []*raftpb.Message
}

// effects is what the core wants done. Messages for peers may leave at once, before
// appends are written.
type effects struct {
	appends  []*raftpb.Message // MsgStorageAppend, in order
	applies  []*raftpb.Message // MsgStorageApply, in order
	messages []*raftpb.Message // to peers
	reads    []raft.ReadState  // read requests that are confirmed
	conf     *conf             // the configuration changed, and was this before
	restored bool              // it did so with a snapshot, which has it
	role     bool              // role, leader or term changed
}

func newCore(id uint64, l *log, lg *slog.Logger) (*core, error) {
	hs, _, err := l.InitialState()
	if err != nil {
		return nil, err
	}
	c := &core{id: id, conf: l.mu.conf, term: hs.GetTerm(), commit: hs.GetCommit()}
	// raft checks its storage with panics; openLog has verified it before.
	c.node, err = raft.NewRawNode(&raft.Config{
		ID:                        id,
		ElectionTick:              electionTicks,
		HeartbeatTick:             heartbeatTicks,
		Storage:                   l,
		Applied:                   l.applied,
		AsyncStorageWrites:        true,
		MaxSizePerMsg:             messageBytesMax,
		MaxCommittedSizePerReady:  applyBytesMax,
		MaxInflightMsgs:           inflightMessages,
		MaxInflightBytes:          inflightBytes,
		CheckQuorum:               true,
		PreVote:                   true,
		ReadOnlyOption:            raft.ReadOnlySafe,
		DisableProposalForwarding: true,
		StepDownOnRemoval:         true,
		Logger:                    raftLogger{lg},
	})
	if err != nil {
		return nil, fmt.Errorf("replica: starting raft: %w", err)
	}
	changes, err := l.confChanges(c.conf.index, l.applied)
	if err != nil {
		return nil, err
	}
	for _, e := range changes {
		if err := c.changeConf(e); err != nil {
			return nil, err
		}
	}
	if len(changes) > 0 { // snapshots bear what the log knows, and a cut of it writes that
		if err := l.setConf(c.conf); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// sole reports whether this member is the whole ensemble.
func (c *core) sole() bool {
	s := c.conf.state
	return c.soleVoter() && len(s.GetLearners()) == 0 && len(s.GetLearnersNext()) == 0
}

// soleVoter reports whether this member alone decides.
func (c *core) soleVoter() bool {
	s := c.conf.state
	return len(s.GetVoters()) == 1 && s.GetVoters()[0] == c.id && len(s.GetVotersOutgoing()) == 0
}

func (c *core) isLeader() bool { return c.role == raft.StateLeader }

// settled reports whether the leader has committed an entry of its own term, so that
// it knows everything that was ever committed.
func (c *core) settled() bool { return c.isLeader() && c.ownStart != 0 && c.commit >= c.ownStart }

// tick moves the core's clock.
func (c *core) tick() { c.node.Tick() }

// campaign starts an election at once.
func (c *core) campaign() error { return c.node.Campaign() }

// propose appends one entry; only the leader can. The error is
// raft.ErrProposalDropped; data belongs to the core from now on.
func (c *core) propose(data []byte) error { return c.node.Propose(data) }

// readIndex asks for the index that a read must wait for. ctx comes back with it; it
// must be unique over all members and restarts, or an old answer could be taken for
// a new one. The request is lost silently if there is no leader or it changes.
func (c *core) readIndex(ctx []byte) {
	if c.isLeader() && !c.settled() {
		c.reads = append(c.reads, ctx)
		return
	}
	c.node.ReadIndex(ctx)
}

// step takes a message from a peer.
func (c *core) step(m *raftpb.Message) error { return c.node.Step(m) }

// unreachable tells that a message to a peer was not sent.
func (c *core) unreachable(peer uint64) { c.node.ReportUnreachable(peer) }

// stored takes the responses that came with a message to storage that is carried out.
func (c *core) stored(m *raftpb.Message) error {
	for _, r := range m.GetResponses() {
		if r.GetTo() != c.id {
			c.deferred = append(c.deferred, r)
			continue
		}
		// A member that was removed meanwhile is no peer of itself any more.
		if err := c.node.Step(r); err != nil && !errors.Is(err, raft.ErrStepPeerNotFound) {
			return fmt.Errorf("replica: %s: %w", r.GetType(), err)
		}
	}
	return nil
}

// ready adds all effects that are outstanding to e and reports whether there were any.
func (c *core) ready(e *effects) (bool, error) {
	some := len(c.deferred) > 0
	e.messages = append(e.messages, c.deferred...)
	c.deferred = c.deferred[:0]
	for c.node.HasReady() {
		some = true
		rd := c.node.Ready()
		if rd.SoftState != nil {
			c.role, c.leader, e.role = rd.SoftState.RaftState, rd.SoftState.Lead, true
		}
		e.reads = append(e.reads, rd.ReadStates...)
		for _, m := range rd.Messages {
			switch m.GetTo() {
			case raft.LocalAppendThread:
				e.appends = append(e.appends, m)
				c.observe(m, e)
				if err := c.restored(m.GetSnapshot(), e); err != nil {
					return true, err
				}
			case raft.LocalApplyThread:
				e.applies = append(e.applies, m)
				if err := c.changeConfs(m.GetEntries(), e); err != nil {
					return true, err
				}
			default:
				e.messages = append(e.messages, m)
			}
		}
		c.releaseReads()
	}
	if c.forgot {
		c.forgot = false
		if lead := c.node.BasicStatus().Lead; lead != c.leader {
			c.leader, e.role, some = lead, true, true
		}
	}
	return some, nil
}

// restored takes the configuration of a snapshot, if there is one.
func (c *core) restored(s *raftpb.Snapshot, e *effects) error {
	if raft.IsEmptySnap(s) {
		return nil
	}
	before := c.conf
	changed, err := snapshotConf(s)
	if err != nil {
		return err
	}
	c.conf, e.restored = changed, true
	if e.conf == nil {
		e.conf = &before
	}
	return nil
}

// observe keeps term, commit index and the beginning of the own term up to date.
func (c *core) observe(m *raftpb.Message, e *effects) {
	if m.Term != nil {
		if m.GetTerm() != c.term {
			c.term, c.ownStart, e.role = m.GetTerm(), 0, true
		}
		c.commit = m.GetCommit()
	}
	if !c.isLeader() {
		c.ownStart = 0
		return
	}
	c.observeConf(m.GetEntries())
	if c.ownStart != 0 {
		return
	}
	for _, entry := range m.GetEntries() {
		if entry.GetTerm() == c.term {
			c.ownStart = entry.GetIndex()
			return
		}
	}
}

// releaseReads passes on the reads that waited, once they can be answered; if the lead is
// lost they are forgotten.
func (c *core) releaseReads() {
	if len(c.reads) == 0 || c.isLeader() && !c.settled() {
		return
	}
	if c.isLeader() {
		for _, ctx := range c.reads {
			c.node.ReadIndex(ctx)
		}
	}
	clear(c.reads)
	c.reads = c.reads[:0]
}

// changeConfs carries out the configuration changes among committed entries.
func (c *core) changeConfs(entries []*raftpb.Entry, e *effects) error {
	for _, entry := range entries {
		if !isConfChange(entry) || entry.GetIndex() <= c.conf.index {
			continue
		}
		before := c.conf
		if err := c.changeConf(entry); err != nil {
			return err
		}
		if e.conf == nil {
			e.conf = &before
		}
	}
	return nil
}

func (c *core) changeConf(e *raftpb.Entry) error {
	cc := new(raftpb.ConfChangeV2)
	if e.GetType() == raftpb.EntryConfChange {
		v1 := new(raftpb.ConfChange)
		if err := proto.Unmarshal(e.GetData(), v1); err != nil {
			return fmt.Errorf("replica: configuration change in entry %d: %w", e.GetIndex(), err)
		}
		cc = v1.AsV2()
	} else if err := proto.Unmarshal(e.GetData(), cc); err != nil {
		return fmt.Errorf("replica: configuration change in entry %d: %w", e.GetIndex(), err)
	}
	before := c.progress()
	state := c.node.ApplyConfChange(cc)
	next, err := c.conf.next(cc.GetContext(), c.conf.state, state)
	if err != nil {
		return fmt.Errorf("replica: configuration change in entry %d: %w", e.GetIndex(), err)
	}
	if c.departed == nil {
		c.departed = map[uint64]uint64{}
	}
	for id, p := range before {
		if slices.Contains(next.removed, id) {
			c.departed[id] = p.Match
		}
	}
	c.conf = conf{index: e.GetIndex(), state: state, members: next}
	return nil
}

// appendReadContext builds a context for readIndex.
func appendReadContext(dst []byte, id, start, n uint64) []byte {
	dst = binary.BigEndian.AppendUint64(dst, id)
	dst = binary.BigEndian.AppendUint64(dst, start)
	return binary.BigEndian.AppendUint64(dst, n)
}
