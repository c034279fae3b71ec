package recipes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-dev/tenure/znode"
)

// reconcileTries bounds one look at a node that others change meanwhile.
const reconcileTries = 5

// run is the owner: it looks at the znode, does what is missing, and waits until
// something may have changed. Events only wake it.
func (n *Node) run(ctx context.Context) {
	defer close(n.done)
	for ctx.Err() == nil {
		sess, err := connected(ctx, n.store)
		if err != nil {
			if ctx.Err() == nil { // the store is closed
				n.publish(nil, NodeState{Err: err})
			}
			return
		}
		if sess != n.last {
			// The new session may be with a member that lags.
			n.last, n.stale, n.wait = sess, true, backoff{}
		}
		watch, err := n.reconcile(ctx, sess)
		if err != nil {
			n.failed(sess, err)
			n.rest(ctx, sess)
			continue
		}
		select {
		case <-watch.C:
		case <-sess.Done():
		case <-n.kick:
		case <-ctx.Done():
		}
		watch.Cancel()
	}
}

// rest waits before the next look after a failure.
func (n *Node) rest(ctx context.Context, sess Session) {
	timer := time.NewTimer(n.wait.next())
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-sess.Done():
	case <-ctx.Done():
	}
}

// failed keeps what is known and says why no more was done.
func (n *Node) failed(sess Session, err error) {
	n.stale = n.stale || errors.Is(err, ErrUncertain)
	if transient(err) || sessionOver(err) || errors.Is(err, context.Canceled) {
		n.log.Debug("to be tried again", "err", err)
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.state.Err == nil {
		n.log.Warn("not kept", "err", err)
	}
	n.mu.session, n.mu.state.Err = sess, err
	n.notify()
}

// reconcile makes the znode be as it is wanted, or finds that it is somebody else's. It
// returns a watch for the next change of it.
func (n *Node) reconcile(ctx context.Context, sess Session) (Watch, error) {
	for range reconcileTries {
		if n.stale {
			if err := n.store.Sync(ctx, n.path); err != nil {
				return Watch{}, err
			}
			n.stale = false
		}
		data, stat, watch, err := n.store.GetW(ctx, n.path)
		switch {
		case errors.Is(err, znode.NoNode):
			n.publish(sess, NodeState{})
			if err := n.create(ctx, sess); err != nil {
				return Watch{}, err
			}
			continue
		case err != nil:
			return Watch{}, err
		}
		if !n.owns(sess, stat) {
			if n.earlier(stat) || n.takeover != nil && n.takeover(data) {
				watch.Cancel()
				if err := n.replace(ctx, sess, stat); err != nil {
					return Watch{}, err
				}
				continue
			}
			n.publish(sess, NodeState{Err: n.taken(stat)})
			return watch, nil
		}
		written, err := n.settle(ctx, stat, data)
		if err != nil {
			watch.Cancel()
			return Watch{}, err
		}
		n.czxid, n.tried = stat.Czxid, false
		n.publish(sess, NodeState{Exists: true, Czxid: stat.Czxid})
		if !written {
			return watch, nil
		}
		watch.Cancel() // it tells of our own write
	}
	return Watch{}, fmt.Errorf("%s changes too fast: %w", n.path, ErrUnavailable)
}

// owns reports whether the znode is ours and of this session. Another one that this
// session owns is somebody else's in this process.
func (n *Node) owns(sess Session, stat znode.Stat) bool {
	if n.spec.Kind != znode.Ephemeral {
		return stat.EphemeralOwner == 0
	}
	return stat.EphemeralOwner != 0 && int64(stat.EphemeralOwner) == sess.ID() && (n.tried || stat.Czxid == n.czxid)
}

// earlier reports whether the znode is ours but of a session before this, which the
// backend has not ended yet: adopted, it would vanish with that session.
func (n *Node) earlier(stat znode.Stat) bool {
	return n.spec.Kind == znode.Ephemeral && stat.EphemeralOwner != 0 &&
		(stat.Czxid == n.czxid || n.tried && int64(stat.EphemeralOwner) == n.triedIn)
}

// taken is why the node does not exist while somebody else's has its path.
func (n *Node) taken(stat znode.Stat) error {
	if stat.EphemeralOwner == 0 {
		return fmt.Errorf("%s is there and not ephemeral: %w", n.path, znode.NodeExists)
	}
	return fmt.Errorf("%s belongs to session 0x%x: %w", n.path, int64(stat.EphemeralOwner), znode.NodeExists)
}

// slow makes creates in quick succession wait, so that whoever deletes the node each
// time it appears is not answered in an endless loop at full speed.
func (n *Node) slow(ctx context.Context) error {
	if n.made.IsZero() || time.Since(n.made) > backoffMax {
		n.wait = backoff{}
	} else if err := pause(ctx, n.wait.next()); err != nil {
		return err
	}
	n.made = time.Now()
	return nil
}

// create makes the znode. That somebody was faster, or that its outcome is unknown, is
// settled by the next look.
func (n *Node) create(ctx context.Context, sess Session) error {
	if err := n.slow(ctx); err != nil {
		return err
	}
	data, gen := n.want()
	n.tried, n.triedIn = true, sess.ID()
	_, err := n.store.Create(ctx, n.path, data, n.spec)
	switch {
	case err == nil, errors.Is(err, ErrUncertain):
		return err
	case errors.Is(err, znode.NodeExists):
		n.tried = false
		return nil
	}
	n.tried = false
	if errors.Is(err, znode.NoNode) {
		parent, _ := znode.Split(n.path)
		n.made = time.Time{} // nothing was made
		return ensureDir(ctx, n.store, parent, n.dir)
	}
	if refusal(err) {
		n.refuse(gen, err)
	}
	return err
}

// replace puts our znode in the place of an older one of ours.
func (n *Node) replace(ctx context.Context, sess Session, old znode.Stat) error {
	if err := n.slow(ctx); err != nil {
		return err
	}
	data, gen := n.want()
	n.tried, n.triedIn = true, sess.ID()
	_, err := n.store.Multi(ctx, OpDelete(n.path, IfVersion(old.Version)), OpCreate(n.path, data, n.spec))
	switch {
	case err == nil, errors.Is(err, ErrUncertain):
		return err
	case errors.Is(err, znode.NoNode), errors.Is(err, znode.BadVersion), errors.Is(err, znode.NodeExists):
		n.tried = false
		return nil // it has changed: look again
	}
	n.tried = false
	if refusal(err) {
		n.refuse(gen, err)
	}
	return err
}

// settle writes the wanted data to the own znode unless it has them. What somebody else
// has written over data that were taken stays.
func (n *Node) settle(ctx context.Context, stat znode.Stat, has []byte) (written bool, err error) {
	data, gen := n.want()
	n.mu.Lock()
	taken := n.mu.took == gen && stat.Czxid == n.czxid
	n.mu.Unlock()
	if taken {
		return false, nil
	}
	if bytes.Equal(has, data) {
		n.took(data, gen)
		return false, nil
	}
	_, err = n.store.Set(ctx, n.path, data, IfVersion(stat.Version))
	switch {
	case err == nil:
		n.took(data, gen)
		return true, nil
	case errors.Is(err, znode.BadVersion), errors.Is(err, znode.NoNode):
		return true, nil // look again
	case refusal(err):
		n.refuse(gen, err)
	}
	return false, err
}

// remove deletes what may be there of us, and waits for it as Close says.
func (n *Node) remove(ctx context.Context) error {
	if n.czxid == 0 && !n.tried {
		return nil
	}
	result := make(chan error, 1)
	removed := false // of the goroutine of ensure, until result
	n.store.Session().Upkeep().ensure(n.log, "delete "+n.path, func(ctx context.Context) error {
		err := n.removeOnce(ctx)
		removed = err == nil
		return err
	}, func(err error) {
		if err == nil && !removed && n.spec.Kind != znode.Ephemeral {
			err = ErrSessionClosed // which does not take such a znode along
		}
		result <- err
	})
	enough := ctx.Done()
	if ctx.Err() != nil {
		enough = nil
	}
	timer := time.NewTimer(closeMax)
	defer timer.Stop()
	select {
	case err := <-result:
		return err
	case <-timer.C:
	case <-enough:
	}
	return fmt.Errorf("the deletion of %s is not answered and goes on: %w", n.path, ErrUncertain)
}

// removeOnce deletes the znode if it is ours.
func (n *Node) removeOnce(ctx context.Context) error {
	if err := n.store.Sync(ctx, n.path); err != nil {
		return err
	}
	_, stat, err := n.store.Get(ctx, n.path)
	switch {
	case errors.Is(err, znode.NoNode):
		return nil
	case err != nil:
		return err
	}
	made := n.spec.Kind != znode.Ephemeral || int64(stat.EphemeralOwner) == n.triedIn
	if stat.Czxid != n.czxid && !(n.tried && made) {
		return nil // somebody else's
	}
	err = n.store.Delete(ctx, n.path, IfVersion(stat.Version))
	switch {
	case errors.Is(err, znode.NoNode):
		return nil
	case errors.Is(err, znode.BadVersion):
		return fmt.Errorf("%w: %w", ErrUnavailable, err) // it has changed: again
	}
	return err
}
