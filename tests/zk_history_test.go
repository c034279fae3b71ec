package tests

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tenure-dev/tenure/client"
	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/znode"
)

// goZKTree is a treeClient of ZooKeeper's door: go-zookeeper, whose reads are preceded by
// sync, as ZooKeeper's own are only then linearizable.
type goZKTree struct {
	t      *testing.T
	c      *zk.Conn
	chroot string
}

// newGoZKTree connects to servers. It is closed at the end of the test.
func newGoZKTree(t *testing.T, servers []string, chroot string) *goZKTree {
	t.Helper()
	c, _, err := zk.Connect(servers, 10*time.Second, zk.WithLogInfo(false), zk.WithLogger(discardLog{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return &goZKTree{t, c, chroot}
}

// discardLog is a zk.Logger.
type discardLog struct{}

func (discardLog) Printf(string, ...any) {}

func (z *goZKTree) session() session.ID { return session.ID(z.c.SessionID()) }
func (z *goZKTree) exact() bool         { return false }

// goZKCodes are the errors that are answers.
var goZKCodes = map[error]znode.Error{
	zk.ErrNodeExists: znode.NodeExists, zk.ErrNoNode: znode.NoNode, zk.ErrBadVersion: znode.BadVersion,
}

// goZKPause is how long to wait when there is no connection.
const goZKPause = 20 * time.Millisecond

func (z *goZKTree) call(_ context.Context, in treeInput) (out treeOutput, mzxid int64, err error) {
	var stat *zk.Stat
	path, write := z.chroot+in.key, true
	switch {
	case in.key == treeSequence && in.op == treeCreate:
		var got string
		if got, err = z.c.Create(path+"/", nil, zk.FlagSequence, zk.WorldACL(zk.PermAll)); err == nil {
			_, err = fmt.Sscanf(got, path+"/%d", &out.number)
		}
	case in.key == treePair && in.op == treeSet:
		stat, err = z.setPair(path, in)
	case in.op == treeSet:
		stat, err = z.c.Set(path, []byte(in.value), in.version)
	case in.op == treeCreate:
		_, err = z.c.Create(path, []byte(in.value), 0, zk.WorldACL(zk.PermAll))
	case in.op == treeDelete:
		err = z.c.Delete(path, in.version)
	default:
		write = false
		out.value, stat, err = z.read(path, in)
	}
	if stat != nil && err == nil {
		out.version, mzxid = stat.Version, stat.Mzxid
		if in.key == treeSequence {
			out, mzxid = treeOutput{number: int(stat.NumChildren)}, 0
		}
	}
	code, answered := goZKCodes[err]
	switch {
	case err == nil:
		return out, mzxid, nil
	case answered:
		return out, 0, code
	}
	<-time.After(goZKPause)
	if write {
		return out, 0, fmt.Errorf("%w: %w", client.ErrUnknown, err)
	}
	return out, 0, err
}

// read reads what was committed before.
func (z *goZKTree) read(path string, in treeInput) (string, *zk.Stat, error) {
	if _, err := z.c.Sync(path); err != nil {
		return "", nil, err
	}
	if in.op == treeCount {
		_, stat, err := z.c.Exists(path)
		return "", stat, err
	}
	if in.op == treeGetSecond {
		path += "-b"
	}
	data, stat, err := z.c.Get(path)
	return string(data), stat, err
}

// setPair sets two znodes of equal versions, which must stay equal.
func (z *goZKTree) setPair(path string, in treeInput) (*zk.Stat, error) {
	results, err := z.c.Multi(&zk.SetDataRequest{Path: path, Data: []byte(in.value), Version: in.version},
		&zk.SetDataRequest{Path: path + "-b", Data: []byte(in.value), Version: in.version})
	for _, r := range results {
		if r.Error != nil && goZKCodes[r.Error] != 0 {
			return nil, r.Error
		}
	}
	if err != nil {
		return nil, err
	}
	if len(results) != 2 {
		return nil, fmt.Errorf("a transaction of 2 has %d results", len(results))
	}
	if a, b := results[0].Stat, results[1].Stat; a.Mzxid != b.Mzxid || a.Version != b.Version {
		z.t.Errorf("one transaction set %+v and %+v", a, b)
	}
	return results[0].Stat, nil
}

func (z *goZKTree) readOld(_ context.Context, key string) (int64, error) {
	_, stat, err := z.c.Get(z.chroot + key)
	if err != nil {
		<-time.After(goZKPause)
		return 0, err
	}
	return stat.Mzxid, nil
}
