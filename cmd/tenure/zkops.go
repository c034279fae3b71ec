package main

import (
	"context"
	"fmt"
	"slices"
	"sort"

	"github.com/go-zookeeper/zk"
	"golang.org/x/sync/errgroup"

	"github.com/tenure-dev/tenure/client"
	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

const (
	// zkParallel bounds the requests that one call makes at once.
	zkParallel = 32
	// zkListsMax bounds the lists that are kept while they are read in pages.
	zkListsMax = 256
	// zkOpBytes is more than a request needs for one operation besides its strings.
	zkOpBytes = 64
	// zkContainerOwner and zkTTLMark are what ZooKeeper keeps as the owner of a container,
	// and in the highest byte of that of a TTL node, whose lower 40 bits are the lifetime.
	// Most versions show neither: the node then looks persistent.
	zkContainerOwner = -1 << 63
	zkTTLMark        = 0xff
)

// statOf converts a Stat. ZooKeeper tells the kind of a node by its owner, which for
// Tenure only an ephemeral node has.
func statOf(s *zk.Stat) (znode.Stat, znode.Lifetime) {
	stat := znode.Stat{
		Czxid: s.Czxid, Mzxid: s.Mzxid, Pzxid: s.Pzxid, Ctime: s.Ctime, Mtime: s.Mtime,
		Version: s.Version, Cversion: s.Cversion, Aversion: s.Aversion,
		DataLength: s.DataLength, NumChildren: s.NumChildren,
	}
	owner := s.EphemeralOwner
	switch {
	case owner == 0:
		return stat, znode.Lifetime{}
	case owner == zkContainerOwner:
		return stat, znode.Lifetime{Kind: znode.Container}
	case uint64(owner)>>56 == zkTTLMark:
		return stat, znode.Lifetime{Kind: znode.TTL, TTLMs: owner & znode.TTLMaxMs}
	}
	stat.EphemeralOwner = session.ID(owner)
	return stat, znode.Lifetime{Kind: znode.Ephemeral}
}

// zkACL converts an access list.
func zkACL(list []znode.ACL) []zk.ACL {
	if len(list) == 0 {
		list = znode.OpenACL
	}
	all := make([]zk.ACL, len(list))
	for i, e := range list {
		all[i] = zk.ACL{Perms: e.Perms, Scheme: e.Scheme, ID: e.ID}
	}
	return all
}

// zkSize is about how many bytes a request of path, data and acl has.
func zkSize(path string, data []byte, acl []znode.ACL) int {
	n := zkOpBytes + len(path) + len(data)
	for _, e := range acl {
		n += 12 + len(e.Scheme) + len(e.ID)
	}
	return n
}

// checkSize refuses a request that a server would answer by cutting the connection.
func checkSize(op, path string, n int) error {
	if n > zkRequestMax {
		return &zkCallError{op, path, []error{fmt.Errorf("%w: %d bytes, at most %d", client.ErrTooLarge, n, zkRequestMax)}}
	}
	return nil
}

// zkData is a node as one reply shows it.
type zkData struct {
	data []byte
	stat *zk.Stat
}

// Get implements tree.
func (z *zkTree) Get(ctx context.Context, path string, _ client.ReadOptions) ([]byte, znode.Stat, error) {
	r, err := zkCall(ctx, z, "get", path, false, func() (d zkData, err error) {
		d.data, d.stat, err = z.conn.Get(z.full(path))
		return d, err
	})
	if err != nil {
		return nil, znode.Stat{}, err
	}
	stat, _ := statOf(r.stat)
	return r.data, stat, nil
}

// Stat implements tree.
func (z *zkTree) Stat(ctx context.Context, path string, _ client.ReadOptions) (znode.Stat, znode.Lifetime, error) {
	r, err := zkCall(ctx, z, "stat", path, false, func() (*zk.Stat, error) {
		exists, stat, err := z.conn.Exists(z.full(path))
		if err == nil && !exists {
			err = zk.ErrNoNode
		}
		return stat, err
	})
	if err != nil {
		return znode.Stat{}, znode.Lifetime{}, err
	}
	stat, life := statOf(r)
	return stat, life, nil
}

// zkChildren is a list as one reply shows it.
type zkChildren struct {
	names []string
	stat  *zk.Stat
}

// List implements tree. ZooKeeper has no pages: the list is read at once, and what does
// not fit the page is kept until the next is asked for. Stats are a request per child;
// a child that vanishes meanwhile is left out.
func (z *zkTree) List(ctx context.Context, path string, p wire.List, _ client.ReadOptions) (wire.ListReply, error) {
	names, known := z.restOf(path, p.After)
	if !known {
		list, err := zkCall(ctx, z, "list", path, false, func() (c zkChildren, err error) {
			c.names, c.stat, err = z.conn.Children(z.full(path))
			return c, err
		})
		if err != nil {
			return wire.ListReply{}, err
		}
		names = list.names
		slices.Sort(names)
		if p.After != "" {
			names = names[sort.Search(len(names), func(i int) bool { return names[i] > p.After }):]
		}
	}
	reply := wire.ListReply{Names: names}
	if limit := int(p.Limit); limit > 0 && len(names) > limit {
		reply.Names, reply.More = names[:limit:limit], true
		z.keep(path, names[limit-1:])
	}
	if !p.Stats {
		return reply, nil
	}
	return reply, z.addStats(ctx, path, &reply)
}

// restOf returns the names behind after in a list that was kept, and forgets it.
func (z *zkTree) restOf(path, after string) ([]string, bool) {
	z.mu.Lock()
	defer z.mu.Unlock()
	rest := z.lists[path]
	delete(z.lists, path)
	if after == "" || len(rest) == 0 || rest[0] != after {
		return nil, false
	}
	return rest[1:], true
}

// keep remembers rest, which begins with the last name of a page, for restOf.
func (z *zkTree) keep(path string, rest []string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	for other := range z.lists {
		if len(z.lists) < zkListsMax {
			break
		}
		delete(z.lists, other) // it will be read again
	}
	z.lists[path] = rest
}

// addStats adds the Stats and Lifetimes of the names in reply.
func (z *zkTree) addStats(ctx context.Context, path string, reply *wire.ListReply) error {
	type found struct {
		stat znode.Stat
		life znode.Lifetime
		gone bool
	}
	all := make([]found, len(reply.Names))
	err := inParallel(ctx, len(all), func(ctx context.Context, i int) (err error) {
		f := &all[i]
		f.stat, f.life, err = z.Stat(ctx, znode.Join(path, reply.Names[i]), client.ReadOptions{})
		if f.gone = isGone(err); f.gone {
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	var names []string
	for i, f := range all {
		if !f.gone {
			names = append(names, reply.Names[i])
			reply.Stats = append(reply.Stats, f.stat)
			reply.Lifetimes = append(reply.Lifetimes, f.life)
		}
	}
	// A page without names would be taken for the last.
	if len(names) == 0 && reply.More {
		rest, err := z.List(ctx, path, wire.List{Path: path, After: reply.Names[len(reply.Names)-1], Limit: int32(len(all)), Stats: true}, client.ReadOptions{})
		*reply = rest
		return err
	}
	reply.Names = names
	return nil
}

// inParallel calls f for 0 to n-1, zkParallel at a time, until one fails.
func inParallel(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(zkParallel)
	for i := range n {
		group.Go(func() error { return f(groupCtx, i) })
	}
	return group.Wait()
}

// CreateNode implements tree.
func (z *zkTree) CreateNode(ctx context.Context, path string, data []byte, o client.CreateOptions, wantStat bool) (string, znode.Stat, error) {
	op := &znode.Create{Path: path, Data: data, ACL: o.ACL, Mode: o.Mode, TTLMs: o.TTL.Milliseconds()}
	created, err := z.create(ctx, op)
	if err != nil || !wantStat {
		return created, znode.Stat{}, err
	}
	stat, err := z.createdStat(ctx, created, data)
	if err != nil {
		err = fmt.Errorf("created %s, but its Stat cannot be read: %w", created, err)
	}
	return created, stat, err
}

// create makes one node of any kind and returns its path.
func (z *zkTree) create(ctx context.Context, op *znode.Create) (string, error) {
	if err := checkSize("create", op.Path, zkSize(op.Path, op.Data, op.ACL)); err != nil {
		return "", err
	}
	path, acl := z.full(op.Path), zkACL(op.ACL)
	if op.Mode.Sequential { // the name may be empty
		path = z.chroot + op.Path
	}
	created, err := zkCall(ctx, z, "create", op.Path, true, func() (string, error) {
		switch {
		case op.Mode.Kind == znode.Container:
			return z.conn.CreateContainer(path, op.Data, zk.FlagContainer, acl)
		case op.Mode.Kind == znode.TTL && op.Mode.Sequential:
			return z.conn.CreateTTL(path, op.Data, zk.FlagPersistentSequentialWithTTL, acl, ttlOf(op))
		case op.Mode.Kind == znode.TTL:
			return z.conn.CreateTTL(path, op.Data, zk.FlagTTL, acl, ttlOf(op))
		}
		return z.conn.Create(path, op.Data, zkFlags(op.Mode), acl)
	})
	return z.below(created), err
}

// createdStat is the Stat that the node had when it was made: what is not fixed then is
// read.
func (z *zkTree) createdStat(ctx context.Context, path string, data []byte) (znode.Stat, error) {
	s, _, err := z.Stat(ctx, path, client.ReadOptions{})
	if err != nil {
		return s, err
	}
	return znode.Stat{
		Czxid: s.Czxid, Mzxid: s.Czxid, Pzxid: s.Czxid, Ctime: s.Ctime, Mtime: s.Ctime,
		EphemeralOwner: s.EphemeralOwner, DataLength: int32(len(data)),
	}, nil
}

// Set implements tree.
func (z *zkTree) Set(ctx context.Context, path string, data []byte, version int32) (znode.Stat, error) {
	if err := checkSize("set", path, zkSize(path, data, nil)); err != nil {
		return znode.Stat{}, err
	}
	return z.change(ctx, "set", path, func() (*zk.Stat, error) { return z.conn.Set(z.full(path), data, version) })
}

// change is a write that answers with a Stat.
func (z *zkTree) change(ctx context.Context, op, path string, request func() (*zk.Stat, error)) (znode.Stat, error) {
	r, err := zkCall(ctx, z, op, path, true, request)
	if err != nil {
		return znode.Stat{}, err
	}
	stat, _ := statOf(r)
	return stat, nil
}

// Delete implements tree.
func (z *zkTree) Delete(ctx context.Context, path string, version int32) error {
	_, err := zkCall(ctx, z, "delete", path, true, func() (none struct{}, err error) {
		return none, z.conn.Delete(z.full(path), version)
	})
	return err
}

// GetACL implements tree.
func (z *zkTree) GetACL(ctx context.Context, path string) ([]znode.ACL, znode.Stat, error) {
	type answer struct {
		acl  []zk.ACL
		stat *zk.Stat
	}
	r, err := zkCall(ctx, z, "getACL", path, false, func() (a answer, err error) {
		a.acl, a.stat, err = z.conn.GetACL(z.full(path))
		return a, err
	})
	if err != nil {
		return nil, znode.Stat{}, err
	}
	acl := make([]znode.ACL, len(r.acl))
	for i, e := range r.acl {
		acl[i] = znode.ACL{Perms: e.Perms, Scheme: e.Scheme, ID: e.ID}
	}
	stat, _ := statOf(r.stat)
	return acl, stat, nil
}

// SetACL implements tree.
func (z *zkTree) SetACL(ctx context.Context, path string, acl []znode.ACL, version int32) (znode.Stat, error) {
	if err := checkSize("setACL", path, zkSize(path, nil, acl)); err != nil {
		return znode.Stat{}, err
	}
	return z.change(ctx, "setACL", path, func() (*zk.Stat, error) { return z.conn.SetACL(z.full(path), zkACL(acl), version) })
}

// CountDescendants implements tree: the library has no request for it.
func (z *zkTree) CountDescendants(_ context.Context, path string) (int, error) {
	return 0, &client.Error{Op: "countDescendants", Path: path, Code: znode.Unimplemented}
}

// Sync implements tree.
func (z *zkTree) Sync(ctx context.Context, path string) error {
	_, err := zkCall(ctx, z, "sync", path, false, func() (string, error) { return z.conn.Sync(z.full(path)) })
	return err
}
