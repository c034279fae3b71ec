package replica

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// MaxMemberID is the largest id of a member: what a ZooKeeper server's may be, as clients
// and tools that show "myid" take it for granted.
const MaxMemberID = 255

// StepKind is what a Step does.
type StepKind uint8

// The kinds of step.
const (
	// AddLearner adds a member without a vote, which gets a copy of the state and follows.
	// Nothing waits for it, so a wrong address costs nothing.
	AddLearner StepKind = iota + 1
	// Promote gives a learner a vote, Demote takes it away.
	Promote
	Demote
	// Remove ends a membership. The id is never used again.
	Remove
	// SetAddress says where a member listens from now on.
	SetAddress
)

// Step is one part of a Change.
type Step struct {
	Kind StepKind
	ID   uint64
	// Address is where the member listens for the others, HOST:PORT; of AddLearner and
	// SetAddress.
	Address string
}

// Change is what is to become of the members. Several steps take effect together: while the
// change is under way, a majority of the voters before and one of those after are needed.
type Change struct {
	// Number makes a change that is asked for again, because its answer was lost, the same
	// one as before; 0 draws one.
	Number uint64
	Steps  []Step
}

// Member is one member of the ensemble.
type Member struct {
	ID      uint64
	Address string // where it listens for the others; "" if the log does not say
	Voter   bool   // otherwise it is a learner
	Leader  bool
	// Answering is whether the leader has heard of it within an election timeout, Match the
	// last entry that it is known to have on disk, Lag how many entries of the leader's log it
	// lacks. They are only known if Members.Current.
	Answering  bool
	Match, Lag uint64
}

// Members is who belongs to the ensemble.
type Members struct {
	// Current is whether the leader said so; else it is what the member asked has applied.
	Current bool
	Leader  uint64 // 0 if unknown
	// Index is the entry of the last change, or a later one on a member that got the state
	// after it; Changing is whether a change is under way.
	Index    uint64
	Changing bool
	List     []Member // by id
	// Removed are the ids that were members once, ascending.
	Removed []uint64
}

// Free returns the lowest id that no member ever had, 0 if all are used up.
func (m *Members) Free() uint64 {
	for id := uint64(1); id <= MaxMemberID; id++ {
		if !slices.Contains(m.Removed, id) && !slices.ContainsFunc(m.List, func(e Member) bool { return e.ID == id }) {
			return id
		}
	}
	return 0
}

// Errors of Change and TransferLeader, each wrapped with what is wrong.
var (
	// ErrMember: an id or an address that the rules do not allow there.
	ErrMember = errors.New("replica: not allowed")
	// ErrChanging: another change is under way.
	ErrChanging = errors.New("replica: another change of the members is under way")
	// ErrNoQuorum: too few of the voters that would be left answer.
	ErrNoQuorum = errors.New("replica: there would be no majority")
	// ErrBehind: a learner does not have the log yet.
	ErrBehind = errors.New("replica: not caught up")
	// ErrRemoved: the member was removed from the ensemble.
	ErrRemoved = errors.New("replica: the member was removed")
)

// errAgain: not now, but perhaps soon or of another member.
var errAgain = errors.New("replica: the leader is changing")

const (
	// leaderPatience bounds one question to the leader about members, which is then put
	// again, perhaps to another one, after leaderPause.
	leaderPatience = 3 * time.Second
	leaderPause    = 100 * time.Millisecond
)

// Change changes the members, asked of any of them, and returns when that is done and
// applied on the leader. The error names the rule that forbids it: ErrMember, ErrChanging,
// ErrNoQuorum, ErrBehind; or ErrStopped; or it is ctx's, after which the change may still
// happen. ctx should have a deadline.
func (r *Replica) Change(ctx context.Context, c Change) (Members, error) {
	if c.Number == 0 {
		c.Number = rand.Uint64() | 1
	}
	return r.askLeader(ctx, memberQuestion{kind: askChange, number: c.Number, steps: c.Steps})
}

// Members returns who belongs to the ensemble, as the leader sees it. If it cannot be
// reached that is what this member knows: see Members.Current. The error is ErrStopped.
func (r *Replica) Members(ctx context.Context) (Members, error) {
	m, err := r.askOnce(ctx, memberQuestion{kind: askList})
	if err == nil || errors.Is(err, ErrStopped) {
		return m, err
	}
	return r.Configuration(), nil
}

// Configuration returns who belongs to the ensemble as this member has applied it.
func (r *Replica) Configuration() Members {
	p := r.status.Load()
	return listMembers(&p.conf, p.leader)
}

// TransferLeader makes voter to the leader, or with 0 whoever is best fit, asked of any
// member, and returns when the lead has moved. Errors: ErrMember, ErrNoSuccessor,
// ErrStopped, ctx's.
func (r *Replica) TransferLeader(ctx context.Context, to uint64) error {
	_, err := r.askLeader(ctx, memberQuestion{kind: askTransfer, number: to})
	return err
}

// askLeader puts a question to whoever leads until there is an answer.
func (r *Replica) askLeader(ctx context.Context, q memberQuestion) (Members, error) {
	for {
		changed := *r.changed.Load()
		m, err := r.askOnce(ctx, q)
		if !errors.Is(err, errAgain) {
			return m, err
		}
		pause := time.NewTimer(leaderPause)
		select {
		case <-changed:
		case <-pause.C:
		case <-ctx.Done():
			err = fmt.Errorf("%w: %w", ctx.Err(), err)
			pause.Stop()
			return Members{}, err
		case <-r.ctx.Done():
			pause.Stop()
			return Members{}, ErrStopped
		}
		pause.Stop()
	}
}

// askOnce puts a question to whoever leads now. errAgain: there was no answer.
func (r *Replica) askOnce(ctx context.Context, q memberQuestion) (Members, error) {
	ctx, cancel := context.WithTimeout(ctx, leaderPatience)
	defer cancel()
	switch leader := r.status.Load().leader; leader {
	case 0:
		return Members{}, fmt.Errorf("%w: member %d knows of none", errAgain, r.o.ID)
	case r.o.ID:
		return r.answerQuestion(ctx, q)
	default:
		reply, err := r.call(ctx, leader, frameMembers, appendQuestion(nil, q))
		if err != nil {
			return Members{}, fmt.Errorf("%w: %w", errAgain, err)
		}
		return decodeAnswer(reply)
	}
}

// answerQuestion answers a question about members, if this member leads.
func (r *Replica) answerQuestion(ctx context.Context, q memberQuestion) (Members, error) {
	var err error
	term := r.Leads()
	switch q.kind {
	case askChange:
		err = r.changeHere(ctx, q.number, q.steps)
	case askTransfer:
		err = r.transferHere(ctx, q.number)
	}
	if err != nil {
		return Members{}, r.confirmed(ctx, term, err)
	}
	return r.membersHere(ctx)
}

// confirmed returns why something is refused if this member still leads in term. A leader
// that was deposed and does not know it judges by members that are no more.
func (r *Replica) confirmed(ctx context.Context, term uint64, refusal error) error {
	if errors.Is(refusal, errAgain) || errors.Is(refusal, ErrStopped) {
		return refusal
	}
	confirmed := make(chan error, 1)
	r.Barrier(func(err error) { confirmed <- err })
	select {
	case err := <-confirmed:
		if err == nil && term != 0 && r.Leads() == term {
			return refusal
		}
	case <-ctx.Done():
	}
	// Only the text of the refusal: whoever asks must not find in the error what it is.
	return fmt.Errorf("%w: refused by a member that may not lead any more: %s", errAgain, refusal.Error())
}

// transferHere hands the lead over, if this member leads. Whether it was to who then leads
// is that one's to say.
func (r *Replica) transferHere(ctx context.Context, to uint64) error {
	switch {
	case !r.Status().IsLeader:
		return fmt.Errorf("%w: member %d does not lead", errAgain, r.o.ID)
	case to == r.o.ID:
		return nil
	}
	err := r.handOver(ctx, to)
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", errAgain, ctx.Err())
	case err == nil && to != 0:
		return fmt.Errorf("%w: member %d has handed over to member %d", errAgain, r.o.ID, to)
	}
	return err
}

// membersHere returns the members as the leader sees them, if this member leads.
func (r *Replica) membersHere(ctx context.Context) (Members, error) {
	list := make(chan Members, 1)
	if !r.in.task(func() { list <- r.loop.listMembers() }) {
		return Members{}, ErrStopped
	}
	select {
	case m := <-list:
		return m, nil
	case <-ctx.Done():
		return Members{}, fmt.Errorf("%w: %w", errAgain, ctx.Err())
	}
}

// changeHere carries out a change, if this member leads, or refuses it, as it knows the members.
func (r *Replica) changeHere(ctx context.Context, number uint64, steps []Step) error {
	done := make(chan error, 1)
	if !r.in.task(func() { r.loop.changing.begin(r.loop, number, steps, func(err error) { done <- err }) }) {
		return ErrStopped
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: the change is under way: %w", errAgain, ctx.Err())
	}
}

// listMembers describes the members of c without what only a leader knows.
func listMembers(c *conf, leader uint64) Members {
	m := Members{Leader: leader, Index: c.index, Changing: isJoint(c.state), Removed: slices.Clone(c.removed)}
	for _, id := range memberIDs(c.state) {
		m.List = append(m.List, Member{ID: id, Address: c.addresses[id], Leader: id == leader,
			Voter: slices.Contains(c.state.GetVoters(), id)})
	}
	return m
}
