package main

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/tenure-dev/tenure/client"
	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// zkWatchedMax bounds the nodes of one watch. A ZooKeeper keeps two one-shot watches for
// each, and sets all of them again when a client reconnects.
const zkWatchedMax = 50_000

// What of a node has fired.
const (
	firedData     = 1 << iota // its data watch
	firedChild                // its child watch
	firedCreated              // besides firedData: the node was created
	firedChanged              // besides firedData: its data was changed
	firedChildren             // besides firedChild: its children were changed
)

// zkNode is a watched node as it was last seen.
type zkNode struct {
	stat znode.Stat
	// Of the list of children: its Cversion and, in a recursive watch, the names.
	cversion int32
	names    map[string]struct{}
	// counted are changes of the children that were told since the list was read.
	counted  int32
	listed   bool // its children may be read
	children int  // how many the list had
	unread   bool // its children changed, and it went before they could be read
}

// zkWatch makes a stream of events of one-shot watches: what fired is read again and
// compared with what was known. Versions tell whether events were missed in between; then
// there is a gap. One goroutine runs it; fired and reconnected may be called by any.
type zkWatch struct {
	z         *zkTree
	root      string
	recursive bool
	nodes     map[string]*zkNode // what exists
	events    []wire.Event       // found and not yet told

	mu      sync.Mutex
	pending map[string]int // per path what fired; bounded by the watches that are set
	resumed bool           // the session was resumed on another connection
	wake    chan struct{}  // capacity 1
}

// fired notes that a watch was used up.
func (w *zkWatch) fired(path string, t zk.EventType) {
	what := firedData
	switch t {
	case zk.EventNodeCreated:
		what |= firedCreated
	case zk.EventNodeDataChanged:
		what |= firedChanged
	case zk.EventNodeChildrenChanged:
		what = firedChild | firedChildren
	case zk.EventNodeDeleted:
		what = firedData | firedChild
	}
	w.mu.Lock()
	w.pending[path] |= what
	w.mu.Unlock()
	w.wakeUp()
}

// reconnected notes that there was no connection for a while.
func (w *zkWatch) reconnected() {
	w.mu.Lock()
	w.resumed = true
	w.mu.Unlock()
	w.wakeUp()
}

func (w *zkWatch) wakeUp() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// take returns what fired since it was last called.
func (w *zkWatch) take() (pending map[string]int, resumed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	pending, resumed = w.pending, w.resumed
	w.pending, w.resumed = map[string]int{}, false
	return pending, resumed
}

// Watch implements tree. ZooKeeper keeps no history: with o.FromZxid there is one gap
// first if anything is newer.
func (z *zkTree) Watch(ctx context.Context, path string, o client.WatchOptions) iter.Seq2[wire.Event, error] {
	return func(yield func(wire.Event, error) bool) {
		w := &zkWatch{z: z, root: path, recursive: o.Recursive, nodes: map[string]*zkNode{},
			pending: map[string]int{}, wake: make(chan struct{}, 1)}
		z.mu.Lock()
		z.watching[w] = struct{}{}
		z.mu.Unlock()
		defer func() {
			z.mu.Lock()
			delete(z.watching, w)
			z.mu.Unlock()
		}()
		if err := w.run(ctx, o, func(e wire.Event) bool { return yield(e, nil) }); err != nil && ctx.Err() == nil {
			yield(wire.Event{}, err)
		}
	}
}

// run tells events until ctx ends or tell returns false.
func (w *zkWatch) run(ctx context.Context, o client.WatchOptions, tell func(wire.Event) bool) error {
	if err := w.start(ctx, o); err != nil {
		return err
	}
	for {
		// Those that were found together may have come in another order.
		slices.SortStableFunc(w.events, func(a, b wire.Event) int { return int(min(max(a.Zxid-b.Zxid, -1), 1)) })
		for _, e := range w.events {
			if !tell(e) {
				return nil
			}
		}
		w.events = nil
		select {
		case <-ctx.Done():
			return nil
		case <-w.z.session.Done():
			return &zkCallError{"watch", w.root, []error{w.z.session.Err()}}
		case <-w.wake:
		}
		pending, resumed := w.take()
		if err := w.look(ctx, pending, resumed); err != nil {
			return err
		}
	}
}

// start sets the first watches.
func (w *zkWatch) start(ctx context.Context, o client.WatchOptions) error {
	if err := w.arm(ctx, []string{w.root}); err != nil {
		return err
	}
	w.events = nil // what exists is no news
	newest := int64(0)
	for _, n := range w.nodes {
		newest = max(newest, n.stat.Mzxid, n.stat.Pzxid)
	}
	if o.FromZxid != 0 {
		if len(w.nodes) == 0 { // it may have been deleted
			var err error
			if newest, err = w.childrenZxid(ctx, w.root); err != nil {
				return err
			}
		}
		if newest > o.FromZxid {
			w.add(wire.EventGap, w.root, newest)
		}
	}
	if o.Armed != nil {
		o.Armed(newest)
	}
	return nil
}

func (w *zkWatch) add(t znode.EventType, path string, zxid int64) {
	w.events = append(w.events, wire.Event{Type: t, Path: path, Zxid: zxid})
}

// gap tells that events of path are missing that happened up to zxid.
func (w *zkWatch) gap(path string, zxid int64) { w.add(wire.EventGap, path, zxid) }

// look reads again what fired, children before their parents.
func (w *zkWatch) look(ctx context.Context, pending map[string]int, resumed bool) error {
	if resumed && w.nodes[w.root] == nil && pending[w.root] == 0 {
		// It may have come and gone, of which no watch tells.
		if err := w.missed(ctx, w.root); err != nil {
			return err
		}
	}
	paths := make([]string, 0, len(pending))
	for path := range pending {
		paths = append(paths, path)
	}
	slices.SortFunc(paths, func(a, b string) int {
		if byDepth := strings.Count(b, "/") - strings.Count(a, "/"); byDepth != 0 {
			return byDepth
		}
		return strings.Compare(a, b)
	})
	for _, path := range paths {
		if pending[path]&firedData != 0 {
			if err := w.lookAtNode(ctx, path, pending[path]); err != nil {
				return err
			}
		}
		if pending[path]&firedChild != 0 && w.nodes[path] != nil && w.nodes[path].listed {
			if err := w.lookAtChildren(ctx, path, pending[path]); err != nil {
				return err
			}
		}
	}
	return nil
}

// lookAtNode compares a node whose data watch fired, and sets the watch again.
func (w *zkWatch) lookAtNode(ctx context.Context, path string, what int) error {
	n := w.nodes[path]
	if n == nil {
		if path == w.root {
			return w.lookForRoot(ctx, what)
		}
		return nil // told already with its parent
	}
	stat, exists, err := w.existsW(ctx, path)
	switch {
	case err != nil:
		return err
	case !exists:
		return w.lost(ctx, path, n, what)
	case stat.Czxid == n.stat.Czxid:
		w.compareData(path, n, stat)
		return nil
	}
	// Another node of that name. How many there were meanwhile its parent's list tells.
	if path == w.root || what&firedChanged != 0 {
		w.gap(path, stat.Czxid)
	}
	w.gone(path, stat.Czxid)
	parent, name := znode.Split(path)
	if p := w.nodes[parent]; p != nil && p.names != nil && path != w.root {
		p.names[name] = struct{}{}
		p.counted++
	}
	return w.arm(ctx, []string{path})
}

// lookForRoot looks whether the root, which there was not, is there.
func (w *zkWatch) lookForRoot(ctx context.Context, what int) error {
	if err := w.arm(ctx, []string{w.root}); err != nil {
		return err
	}
	if w.nodes[w.root] != nil || what&firedCreated == 0 {
		return nil
	}
	return w.missed(ctx, w.root)
}

// missed tells that something happened to path, which there is not any more.
func (w *zkWatch) missed(ctx context.Context, path string) error {
	zxid, err := w.childrenZxid(ctx, path)
	if err == nil {
		w.gap(path, zxid)
	}
	return err
}

// lost tells that the node n at path is there no more, and what came before that.
func (w *zkWatch) lost(ctx context.Context, path string, n *zkNode, what int) error {
	zxid, err := w.childrenZxid(ctx, path)
	if err != nil {
		return err
	}
	children := what&firedChildren != 0 || n.unread
	if what&firedChanged != 0 || children && (n.children == 0 || !w.recursive && n.children > 1) {
		w.gap(path, zxid)
	}
	if children && !w.recursive {
		w.add(znode.EventChildrenChanged, path, zxid)
	}
	w.gone(path, zxid)
	return nil
}

// compareData tells the changes of the data of n up to stat.
func (w *zkWatch) compareData(path string, n *zkNode, stat znode.Stat) {
	changes := stat.Version - n.stat.Version
	if changes > 1 {
		w.gap(path, stat.Mzxid)
	}
	if changes != 0 {
		w.add(znode.EventDataChanged, path, stat.Mzxid)
	}
	n.stat = stat
}

// gone tells that path was deleted, and all that was known below it.
func (w *zkWatch) gone(path string, zxid int64) {
	for name := range w.nodes[path].names {
		if below := znode.Join(path, name); w.nodes[below] != nil {
			w.gone(below, zxid)
		}
	}
	w.add(znode.EventDeleted, path, zxid)
	delete(w.nodes, path)
	parent, name := znode.Split(path)
	if p := w.nodes[parent]; p != nil && p.names != nil && path != w.root {
		delete(p.names, name)
		p.counted++
	}
}

// lookAtChildren compares the list of a node whose child watch fired, and sets the watch
// again.
func (w *zkWatch) lookAtChildren(ctx context.Context, path string, what int) error {
	n := w.nodes[path]
	list, err := w.childrenW(ctx, path)
	if err != nil || list == nil {
		n.unread = n.unread || what&firedChildren != 0
		return err
	}
	if list.stat.Czxid != n.stat.Czxid {
		return nil // its data watch has fired, too
	}
	created := w.compareChildren(path, n, list)
	return w.arm(ctx, created)
}

// zkList is a list of children with the Stat of their parent.
type zkList struct {
	names []string
	stat  znode.Stat
}

// compareChildren tells what changed up to list, and returns the paths of those that
// were created.
func (w *zkWatch) compareChildren(path string, n *zkNode, list *zkList) (created []string) {
	changes := list.stat.Cversion - n.cversion
	n.cversion, n.children = list.stat.Cversion, len(list.names)
	if !w.recursive {
		if changes > 1 {
			w.gap(path, list.stat.Pzxid)
		}
		if changes > 0 {
			w.add(znode.EventChildrenChanged, path, list.stat.Pzxid)
		}
		return nil
	}
	now := make(map[string]struct{}, len(list.names))
	for _, name := range list.names {
		now[name] = struct{}{}
		if _, known := n.names[name]; !known {
			created = append(created, znode.Join(path, name))
		}
	}
	for name := range n.names {
		if _, stays := now[name]; stays {
			continue
		}
		if below := znode.Join(path, name); w.nodes[below] != nil {
			w.gone(below, list.stat.Pzxid)
		} else {
			n.counted++
		}
	}
	if changes > n.counted+int32(len(created)) {
		w.gap(path, list.stat.Pzxid)
	}
	n.names, n.counted = now, 0
	slices.Sort(created)
	return created
}

// arm sets the watches of paths and, in a recursive watch, of all below, level by level,
// and tells their creation.
func (w *zkWatch) arm(ctx context.Context, paths []string) error {
	for len(paths) > 0 {
		if len(w.nodes)+len(paths) > zkWatchedMax {
			return fmt.Errorf("watch %s: more than %d nodes, the limit of a recursive watch on ZooKeeper", w.root, zkWatchedMax)
		}
		armed := make([]*zkNode, len(paths))
		lists := make([]*zkList, len(paths))
		err := inParallel(ctx, len(paths), func(ctx context.Context, i int) (err error) {
			armed[i], lists[i], err = w.armOne(ctx, paths[i])
			return err
		})
		if err != nil {
			return err
		}
		var below []string
		for i, path := range paths {
			n := armed[i]
			if n == nil {
				if path != w.root { // it came and went
					if err := w.missed(ctx, path); err != nil {
						return err
					}
				}
				continue
			}
			w.nodes[path] = n
			w.add(znode.EventCreated, path, n.stat.Czxid)
			first := n.stat
			n.stat.Version = 0
			w.compareData(path, n, first)
			if lists[i] != nil {
				below = append(below, w.compareChildren(path, n, lists[i])...)
			}
		}
		paths = below
	}
	return nil
}

// armOne sets the watches of one node; nil if there is none, which for the root is
// watched too.
func (w *zkWatch) armOne(ctx context.Context, path string) (*zkNode, *zkList, error) {
	stat, exists, err := w.existsW(ctx, path)
	if err != nil || !exists {
		return nil, nil, err
	}
	n := &zkNode{stat: stat}
	list, err := w.childrenW(ctx, path)
	if err != nil || list == nil || list.stat.Czxid != stat.Czxid { // the data watch has fired
		return n, nil, err
	}
	n.listed = true
	return n, list, nil
}
