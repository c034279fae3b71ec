package recipes

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/znode"
	"golang.org/x/sync/errgroup"
)

// Bounds of what reading a group costs.
const (
	// memberReads is how many members are read at once.
	memberReads = 8
	// memberWatches is how many members of one stream have a watch on their data. The
	// data of those beyond are read again each memberRefresh.
	memberWatches = 1000
	memberRefresh = 30 * time.Second
)

// GroupOptions configures a Group. The zero value is right for most.
type GroupOptions struct {
	Options // ID and Data are what Join takes if it is given none; Timing and Hooks are not used

	// Debounce holds a changed view back until nothing has changed for so long, ten
	// times as long at most. The first view is never held back.
	Debounce time.Duration
	// Linger keeps a member that vanished in the views of Members for so long, so that
	// a short absence is not seen.
	Linger time.Duration

	// Takeover lets Join replace the node that an earlier process of the same Instance
	// has left behind and whose session has not expired yet. Without it Join waits.
	Takeover bool
	// Instance names this member over its restarts, such as the name of a host or pod.
	// Two live processes must not share it. It is needed for Takeover.
	Instance string
	// Boot grows with each start of the instance. Default is the wall clock in
	// nanoseconds when NewGroup is called; if that went back over a restart, Join waits
	// as it does without Takeover.
	Boot uint64
}

// Member is one member of a group. A plain value that shares Data.
type Member struct {
	ID   string
	Data []byte
	// Czxid is its incarnation: another one is another process, or a new session.
	Czxid int64
	Mzxid int64 // of the last change of the data
	Err   error // its data cannot be read
}

// GroupView is the members of a group at one moment. A plain value that shares Members.
type GroupView struct {
	Members []Member // sorted by ID
	// Pzxid is the last creation or deletion of a member that the view knows of. It does
	// not go back within one stream. 0 if there is no directory yet.
	Pzxid int64
	// Fresh is false if the connection broke since: then this is the last known view. A
	// group is never shown empty because its observer is cut off.
	Fresh bool
}

// Group is a set of members that are there as long as their sessions. A member is a
// child of the group's directory, ephemeral, with its data as they are: members that
// other programs make this way are members too. It is safe for concurrent use and has no
// goroutine of its own.
type Group struct {
	store Store
	path  string
	o     GroupOptions
}

// NewGroup returns the group at path. It does no I/O. A bad option is ErrInvalid.
func NewGroup(s Store, path string, o GroupOptions) (*Group, error) {
	if err := validateDir(path); err != nil {
		return nil, err
	}
	switch {
	case o.Debounce < 0:
		return nil, fmt.Errorf("%w: GroupOptions.Debounce is %v: it must not be negative", ErrInvalid, o.Debounce)
	case o.Linger < 0:
		return nil, fmt.Errorf("%w: GroupOptions.Linger is %v: it must not be negative", ErrInvalid, o.Linger)
	case o.Takeover && o.Instance == "":
		return nil, fmt.Errorf("%w: GroupOptions.Takeover without Instance: what was left behind could not be told from another's", ErrInvalid)
	}
	var err error
	if o.Options, err = o.withDefaults(); err != nil {
		return nil, err
	}
	if o.Boot == 0 {
		o.Boot = uint64(time.Now().UnixNano())
	}
	return &Group{store: s, path: path, o: o}, nil
}

// Join makes this process a member, id if it is not empty and Options.ID if it is, with
// data if they are not nil and Options.Data if they are. It returns when the member
// exists. While another session has the id it waits, see Takeover; what it waited for is
// in the error if ctx ends first, and then nothing is left behind. The membership lasts
// until Leave.
func (g *Group) Join(ctx context.Context, id string, data []byte) (*Membership, error) {
	if id == "" {
		id = g.o.ID
	}
	if data == nil {
		data = g.o.Data
	}
	path := znode.Join(g.path, id)
	if err := znode.ValidatePath(path); err != nil || strings.Contains(id, "/") {
		return nil, fmt.Errorf("%w: member id %q: it must be the name of a znode, without /", ErrInvalid, id)
	}
	m := &Membership{id: id, group: g}
	m.node = newNode(g.store, path, m.encode(data), CreateSpec{Kind: znode.Ephemeral}, g.o.Log)
	m.node.dir = g.kind()
	if g.o.Takeover {
		m.node.takeover = m.leftBehind
	}
	if err := m.node.start(ctx); err != nil {
		return nil, fmt.Errorf("join: %w", err)
	}
	return m, nil
}

// kind is the directory's.
func (g *Group) kind() znode.Kind {
	if g.o.Reap {
		return znode.Container
	}
	return znode.Persistent
}

// View returns the members that the backend has now, which is not older than anything
// committed before the call. Debounce and Linger do not apply.
func (g *Group) View(ctx context.Context) (GroupView, error) {
	v := GroupView{Fresh: true}
	err := retryRead(ctx, func() error {
		if err := g.store.Sync(ctx, g.path); err != nil {
			return err
		}
		names, stat, err := g.store.Children(ctx, g.path)
		if errors.Is(err, znode.NoNode) {
			return nil
		}
		if err != nil {
			return err
		}
		v.Pzxid = stat.Pzxid
		slices.Sort(names)
		found, err := g.read(ctx, names, nil)
		v.Members = v.Members[:0]
		for i := range found {
			if found[i].exists {
				v.Members = append(v.Members, found[i].Member)
			}
		}
		return err
	})
	if err != nil {
		return GroupView{}, fmt.Errorf("members of %s: %w", g.path, err)
	}
	return v, nil
}

// Members yields the present view and then the latest after each change: of members, of
// their data, and of Fresh. Views in between may be missed, the last one is not. It ends
// silently with ctx, and with an error if the store is closed or the backend refuses. A
// stream has one watch on the directory and one on each member, of the first thousand;
// data of members beyond are up to 30 s old. Leaving the loop releases everything.
func (g *Group) Members(ctx context.Context) iter.Seq2[GroupView, error] {
	return func(yield func(GroupView, error) bool) {
		l := &groupLooker{group: g, seen: map[string]*seenMember{}}
		for v, err := range stream(ctx, g.store, g.path, l) {
			if err != nil {
				yield(GroupView{}, fmt.Errorf("members of %s: %w", g.path, err))
				return
			}
			view := v.value
			view.Members, view.Fresh = slices.Clone(view.Members), v.fresh
			if !yield(view, nil) {
				return
			}
		}
	}
}

// readMember is one member as it was read.
type readMember struct {
	Member
	exists  bool
	watched bool
	watch   Watch
}

// read reads members by name, a few at once, with a watch on those for which watch says
// so. Also with an error, some have a watch.
func (g *Group) read(ctx context.Context, names []string, watch func(i int) bool) ([]readMember, error) {
	found := make([]readMember, len(names))
	var reads errgroup.Group
	reads.SetLimit(memberReads)
	for i, name := range names {
		reads.Go(func() (err error) {
			found[i], err = g.readOne(ctx, name, watch != nil && watch(i))
			return err
		})
	}
	err := reads.Wait()
	return found, err
}

// readOne reads one member. That its data may not be read is part of it and no error.
func (g *Group) readOne(ctx context.Context, id string, watched bool) (m readMember, err error) {
	var stat znode.Stat
	var data []byte
	path := znode.Join(g.path, id)
	if watched {
		data, stat, m.watch, err = g.store.GetW(ctx, path)
	} else {
		data, stat, err = g.store.Get(ctx, path)
	}
	switch {
	case errors.Is(err, znode.NoNode):
		return readMember{}, nil
	case refusal(err):
		m.Err = fmt.Errorf("read %s: %w", path, err)
		if stat, m.exists, m.watch, err = g.store.ExistsW(ctx, path); err != nil {
			return readMember{}, err
		}
		if !watched || !m.exists {
			m.watch.Cancel()
		}
	case err != nil:
		return readMember{}, err
	default:
		m.exists, m.Data = true, memberData(data)
	}
	m.ID, m.Czxid, m.Mzxid = id, stat.Czxid, stat.Mzxid
	m.watched = watched && m.exists
	return m, nil
}
