package recipes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/tenure-dev/tenure/znode"
)

// partiesMax bounds a DoubleBarrier: a round begins in one transaction that checks every
// member.
const partiesMax = 1000

// roundDir holds a directory for each round with its members; the data of that directory
// are the members that the round began with, nothing before it has.
const roundDir = "round"

// DoubleBarrier lets a fixed number of parties begin together and end together, round
// after round. It is safe for concurrent use: each Enter is a party of its own.
//
// A round begins when that many members that are there, sessions alive, have entered it;
// whoever dies or gives up before is not counted. Whoever dies after it counts as having
// left. Members above the number take part in the next round.
type DoubleBarrier struct {
	store   Store
	path    string
	parties int
	options Options
}

// barrierRecord is the data of the directory.
type barrierRecord struct {
	Round   int64 `json:"round"`   // the one that is gathering; those before have begun
	Parties int   `json:"parties"` // that it begins with
}

// NewDoubleBarrier returns the double barrier at path for n parties, 1 to 1000. All must
// name the same n; another n is accepted while nobody is entering.
func NewDoubleBarrier(s Store, path string, n int, o Options) (*DoubleBarrier, error) {
	if err := validateDir(path); err != nil {
		return nil, err
	}
	if n < 1 || n > partiesMax {
		return nil, fmt.Errorf("%w: a double barrier of %d parties: it must be 1 to %d", ErrInvalid, n, partiesMax)
	}
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	return &DoubleBarrier{store: s, path: path, parties: n, options: o}, nil
}

// Enter waits until a round that this party is a member of has begun, which a read must
// say. If it returns an error the party is no member: what it left is removed, in the
// background where the backend cannot be reached. If ctx ends just when the round begins,
// the others have begun it and see this party as one that has left.
//
// A party is tied to the session it enters with: its end is the end of Enter.
func (b *DoubleBarrier) Enter(ctx context.Context) (*Round, error) {
	sess, err := connected(ctx, b.store)
	if err != nil {
		return nil, fmt.Errorf("enter barrier %s: %w", b.path, err)
	}
	e := &entrant{barrier: b, session: sess}
	var begun *Round
	err = insist(ctx, sess, func() (err error) {
		begun, err = e.try(ctx)
		return err
	})
	if err != nil {
		e.abandon()
		return nil, fmt.Errorf("enter barrier %s: %w", b.path, err)
	}
	return begun, nil
}

// entrant is one call of Enter.
type entrant struct {
	barrier *DoubleBarrier
	session Session
	number  int64  // of the round entered
	dir     string // of that round
	member  string // name of its znode there; "" while in no round
	unsure  bool   // whether the znode was made
}

func (e *entrant) path() string { return znode.Join(e.dir, e.member) }

// try goes on from whatever the store says: it enters the round that is gathering, begins
// it if it is complete, or waits for its beginning.
func (e *entrant) try(ctx context.Context) (*Round, error) {
	if e.member == "" {
		if err := e.join(ctx); err != nil {
			return nil, err
		}
	}
	if e.unsure { // what was made without an answer is seen after a sync
		if err := e.barrier.store.Sync(ctx, e.path()); err != nil {
			return nil, err
		}
		e.unsure = false
	}
	data, _, begun, err := e.barrier.store.GetW(ctx, e.dir)
	if errors.Is(err, znode.NoNode) {
		e.member = "" // somebody removed the round, and so its members
		return nil, errConflict
	}
	if err != nil {
		return nil, err
	}
	defer begun.Cancel()
	if len(data) > 0 {
		return e.begin(ctx, data)
	}
	_, stat, gone, err := e.barrier.store.GetW(ctx, e.path())
	if errors.Is(err, znode.NoNode) {
		e.member = ""
		return nil, errConflict
	}
	if err != nil {
		return nil, err
	}
	defer gone.Cancel()
	if int64(stat.EphemeralOwner) != e.session.ID() {
		return nil, ErrSessionExpired // made in a session that came after ours
	}
	if complete, err := e.complete(ctx); err != nil || complete {
		return nil, again(err)
	}
	select {
	case <-begun.C:
	case <-gone.C:
	case <-e.session.Done():
		return nil, e.session.Err()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return nil, errAgain
}

// again is errAgain where there is no error.
func again(err error) error {
	if err == nil {
		return errAgain
	}
	return err
}

// join makes the member in the round that is gathering. The transaction makes it only
// while that is so.
func (e *entrant) join(ctx context.Context) error {
	b := e.barrier
	record, version, err := b.record(ctx)
	if err != nil {
		return err
	}
	dir := b.dir(record.Round)
	if err := ensureDir(ctx, b.store, dir, znode.Container); err != nil {
		return err
	}
	e.number, e.dir, e.member, e.unsure = record.Round, dir, "m-"+newGUID(), true
	_, err = b.store.Multi(ctx,
		OpCheck(b.path, IfVersion(version)),
		OpCreate(e.path(), []byte(b.options.ID), CreateSpec{Kind: znode.Ephemeral}))
	if refused, ok := errors.AsType[*MultiError](err); ok {
		b.options.Log.Debug("round begun without us", "path", b.path, "round", record.Round, "err", refused)
		e.member = ""
		return errConflict
	}
	e.unsure = err != nil
	return err
}

// record reads what round is gathering. If that is none for as many parties as ours, it
// begins to gather one.
func (b *DoubleBarrier) record(ctx context.Context) (barrierRecord, int32, error) {
	r, version, err := b.read(ctx)
	if errors.Is(err, znode.NoNode) {
		kind := znode.Persistent
		if b.options.Reap {
			kind = znode.Container
		}
		return r, 0, again(ensureDir(ctx, b.store, b.path, kind))
	}
	if err != nil || r.Parties == b.parties {
		return r, version, err
	}
	ops := []Op{OpSet(b.path, barrierRecord{Round: r.Round + 1, Parties: b.parties}.encode(), IfVersion(version))}
	if r.Parties != 0 {
		// Nobody may be in the round that is given up: a directory with members stays.
		if err := ensureDir(ctx, b.store, b.dir(r.Round), znode.Container); err != nil {
			return r, 0, err
		}
		ops = append(ops, OpDelete(b.dir(r.Round), Always()))
	}
	_, err = b.store.Multi(ctx, ops...)
	switch {
	case errors.Is(err, znode.NotEmpty):
		return r, 0, fmt.Errorf("%w: %d parties: round %d is gathering %d", ErrInvalid, b.parties, r.Round, r.Parties)
	case errors.Is(err, znode.BadVersion), errors.Is(err, znode.NoNode):
		return r, 0, errConflict
	}
	return r, 0, again(err)
}

func (b *DoubleBarrier) read(ctx context.Context) (r barrierRecord, version int32, err error) {
	data, stat, err := b.store.Get(ctx, b.path)
	if err != nil || len(data) == 0 {
		return r, stat.Version, err
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, 0, fmt.Errorf("%w: data of %s are not a double barrier's: %w", ErrInvalid, b.path, err)
	}
	return r, stat.Version, nil
}

func (r barrierRecord) encode() []byte {
	data, err := json.Marshal(r)
	if err != nil {
		panic(fmt.Sprintf("encode %+v: %v", r, err)) // two numbers
	}
	return data
}

func (b *DoubleBarrier) dir(round int64) string {
	return znode.Join(znode.Join(b.path, roundDir), fmt.Sprintf("%010d", round))
}

// complete begins the round if enough members are there, and reports whether it may have
// begun. Each member looks when it has entered; one that is listed but gone is not counted,
// since the transaction checks them all.
func (e *entrant) complete(ctx context.Context) (bool, error) {
	b := e.barrier
	names, _, err := b.store.Children(ctx, e.dir)
	if err != nil {
		return false, err
	}
	present := members(names)
	if len(present) < b.parties {
		return false, nil
	}
	record, version, err := b.read(ctx)
	if err != nil || record.Round != e.number {
		return true, err
	}
	present = present[:b.parties]
	ops := []Op{
		OpSet(b.path, barrierRecord{Round: e.number + 1, Parties: b.parties}.encode(), IfVersion(version)),
		OpSet(e.dir, encodeMembers(present), IfVersion(0)),
	}
	for _, m := range present {
		ops = append(ops, OpCheck(znode.Join(e.dir, m), Always()))
	}
	_, err = b.store.Multi(ctx, ops...)
	if refused, ok := errors.AsType[*MultiError](err); ok {
		b.options.Log.Debug("round not begun", "path", b.path, "round", e.number, "err", refused)
		return true, errConflict
	}
	return true, err
}

// members returns the names of members, which other names are not.
func members(names []string) []string {
	var all []string
	for _, name := range names {
		if len(name) == 2+guidLength && name[:2] == "m-" {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

func encodeMembers(names []string) []byte {
	data, err := json.Marshal(names)
	if err != nil {
		panic(fmt.Sprintf("encode %v: %v", names, err)) // strings
	}
	return data
}

// begin is for a round that has begun with the members in data.
func (e *entrant) begin(ctx context.Context, data []byte) (*Round, error) {
	var with []string
	if err := json.Unmarshal(data, &with); err != nil {
		return nil, fmt.Errorf("%w: data of %s are not the members of a round: %w", ErrInvalid, e.dir, err)
	}
	if slices.Contains(with, e.member) {
		return &Round{entrant: *e, members: with}, nil
	}
	// One too many: it enters the next round.
	if err := e.remove(ctx); err != nil {
		return nil, err
	}
	e.member = ""
	return nil, errAgain
}

// remove deletes the member, and the directory of its round if that was the last one:
// nobody will read there any more. Either may be gone already.
func (e *entrant) remove(ctx context.Context) error {
	s := e.barrier.store
	if err := s.Delete(ctx, e.path(), Always()); err != nil && !errors.Is(err, znode.NoNode) {
		return err
	}
	if err := s.Delete(ctx, e.dir, Always()); err != nil {
		e.barrier.options.Log.Debug("round not removed", "path", e.dir, "err", err) // or is a container
	}
	return nil
}

// abandon removes the member, for as long as the session lasts if need be.
func (e *entrant) abandon() {
	if e.member != "" {
		u := e.barrier.store.Session().Upkeep() // if not e's, then a newer one that may have made it
		u.ensure(e.barrier.options.Log, "removal of "+e.path(), e.remove, nil)
	}
}

// Round is one party's part in a round that has begun. It is safe for concurrent use.
type Round struct {
	entrant entrant  // not changed any more
	members []string // that it began with
}

// Number returns the number of the round: the same for all its members, higher for those
// that began later.
func (r *Round) Number() int64 { return r.entrant.number }

// Leave says that this party is done, and waits until all of the round are: it returns nil
// once a read says so. If it returns an error this party has left all the same (in the
// background where the backend cannot be reached); it may be called again to go on waiting.
func (r *Round) Leave(ctx context.Context) error {
	if err := insist(ctx, nil, func() error { return r.entrant.remove(ctx) }); err != nil {
		r.entrant.abandon()
		return r.failed(err)
	}
	if err := insist(ctx, nil, func() error { return r.wait(ctx) }); err != nil {
		return r.failed(err)
	}
	return nil
}

func (r *Round) failed(err error) error {
	return fmt.Errorf("leave round %d of barrier %s: %w", r.entrant.number, r.entrant.barrier.path, err)
}

// wait waits for the end of one of the members that are left, a random one: so all who
// wait list the members a few times each and not at every end.
func (r *Round) wait(ctx context.Context) error {
	s, dir := r.entrant.barrier.store, r.entrant.dir
	if err := s.Sync(ctx, dir); err != nil {
		return err
	}
	names, _, err := s.Children(ctx, dir)
	if errors.Is(err, znode.NoNode) {
		return nil
	}
	if err != nil {
		return err
	}
	left := slices.DeleteFunc(slices.Clone(r.members), func(m string) bool { return !slices.Contains(names, m) })
	if len(left) == 0 {
		return nil
	}
	_, there, watch, err := s.ExistsW(ctx, znode.Join(dir, left[rand.IntN(len(left))]))
	if err != nil {
		return err
	}
	defer watch.Cancel()
	if !there {
		return errAgain
	}
	select {
	case <-watch.C:
		return errAgain
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
