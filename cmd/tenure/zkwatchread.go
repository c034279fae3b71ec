package main

import (
	"context"

	"github.com/go-zookeeper/zk"

	"github.com/tenure-dev/tenure/znode"
)

// existsW reads the Stat of path and sets its data watch. A missing node is watched only
// if it is the root: a watch for each name that ever was would never end.
func (w *zkWatch) existsW(ctx context.Context, path string) (znode.Stat, bool, error) {
	request := w.z.conn.Exists
	if path != w.root {
		if _, exists, err := w.exists(ctx, path, request); err != nil || !exists {
			return znode.Stat{}, false, err
		}
	}
	return w.exists(ctx, path, func(path string) (bool, *zk.Stat, error) {
		exists, stat, _, err := w.z.conn.ExistsW(path) // onEvent hears it
		return exists, stat, err
	})
}

func (w *zkWatch) exists(ctx context.Context, path string, request func(string) (bool, *zk.Stat, error)) (znode.Stat, bool, error) {
	r, err := zkCall(ctx, w.z, "watch", path, false, func() (*zk.Stat, error) {
		exists, stat, err := request(w.z.full(path))
		if !exists {
			stat = nil
		}
		return stat, err
	})
	if err != nil || r == nil {
		return znode.Stat{}, false, err
	}
	stat, _ := statOf(r)
	return stat, true, nil
}

// childrenW lists path and sets its child watch; nil if it is gone or may not be read.
func (w *zkWatch) childrenW(ctx context.Context, path string) (*zkList, error) {
	r, err := zkCall(ctx, w.z, "watch", path, false, func() (c zkChildren, err error) {
		c.names, c.stat, _, err = w.z.conn.ChildrenW(w.z.full(path)) // onEvent hears it
		return c, err
	})
	if code, ok := codeOf(err); ok && (code == znode.NoNode || code == znode.NoAuth) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	stat, _ := statOf(r.stat)
	return &zkList{r.names, stat}, nil
}

// childrenZxid returns when the nearest node above path last lost or got a child: not
// before path was deleted. ZooKeeper does not tell that more exactly.
func (w *zkWatch) childrenZxid(ctx context.Context, path string) (int64, error) {
	for path != "/" {
		path, _ = znode.Split(path)
		if path == "" {
			path = "/"
		}
		stat, exists, err := w.exists(ctx, path, w.z.conn.Exists)
		if err != nil || exists {
			return stat.Pzxid, err
		}
	}
	return 0, nil
}
