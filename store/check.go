package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/znode"
)

// Problem is something wrong with a store. It is a value and may be shared.
type Problem struct {
	// Rule names what is broken and stays the same between versions: open, file,
	// order, record, window, data, ephemeral-index, reap-index, meta, counts,
	// history, or "znode." and the Rule of a znode.Problem.
	Rule string
	// Where is the file, the record's key (formatted) or the znode's path.
	Where  string
	Detail string
}

func (p Problem) String() string { return p.Rule + ": " + p.Where + ": " + p.Detail }

// ProblemsMax bounds what Check returns; it stops looking there.
const ProblemsMax = 1000

// Findings are what Check found. The rest is as the store itself says, zero if it could
// not be opened.
type Findings struct {
	Problems []Problem // none if the store is sound
	Applied  uint64
	Zxid     int64
	Counts   Counts
}

// Check verifies the store in dir, which no process may have open. It changes nothing. It reads everything:
// the checksums of all blocks, every record, the invariants of the tree
// (znode.Verify), the indexes both ways, counts, digest and history. An error means
// that it could not be checked, for instance because there is no store.
func Check(dir string, o Options) (Findings, error) {
	o = o.withDefaults()
	desc, err := pebble.Peek(dir, o.FS)
	if err != nil {
		return Findings{}, fmt.Errorf("store: check %s: %w", dir, err)
	}
	if !desc.Exists {
		return Findings{}, fmt.Errorf("store: check %s: there is no store", dir)
	}
	lock, err := pebble.LockDirectory(dir, o.FS)
	if err != nil {
		return Findings{}, fmt.Errorf("store: check %s: it is in use: %w", dir, err)
	}
	c := &check{dir: dir, o: &o}
	c.options = pebbleOptions(&o, newHealth())
	c.options.ReadOnly, c.options.Lock = true, lock
	db, err := pebble.Open(dir, c.options)
	if err != nil {
		c.report("open", dir, "%v", err)
		return Findings{Problems: c.problems}, lock.Close()
	}
	c.db = db
	for _, step := range []func() error{c.files, c.records, c.tree, c.indexes, c.history} {
		if err := step(); err != nil {
			c.report("record", dir, "%v", err)
		}
		if c.full() {
			break
		}
	}
	found := Findings{c.problems, c.meta.applied, c.meta.zxid, c.meta.counts}
	return found, errors.Join(db.Close(), lock.Close())
}

type check struct {
	dir      string
	o        *Options
	options  *pebble.Options
	db       *pebble.DB
	meta     meta
	problems []Problem
	sessions map[session.ID]*session.Session
}

func (c *check) report(rule, where, format string, args ...any) {
	if !c.full() {
		c.problems = append(c.problems, Problem{rule, where, fmt.Sprintf(format, args...)})
	}
}

func (c *check) full() bool { return len(c.problems) >= ProblemsMax }

// reportRecord reports what is wrong with a record, under its own key if err knows it.
func (c *check) reportRecord(rule string, key []byte, err error) {
	where := formatKey(key)
	var corrupt *CorruptError
	if errors.As(err, &corrupt) {
		where = corrupt.Key
	}
	c.report(rule, where, "%v", err)
}

// files verifies the checksums of all blocks of all tables, and that the levels do
// not contradict each other.
func (c *check) files() error {
	levels, err := c.db.SSTables()
	if err != nil {
		return err
	}
	for _, level := range levels {
		for i := range level {
			name := fmt.Sprintf("%s.sst", level[i].BackingSSTNum)
			if err := c.file(name); err != nil {
				c.report("file", name, "%v", err)
			}
		}
	}
	if err := c.db.CheckLevels(nil); err != nil {
		c.report("order", c.dir, "%v", err)
	}
	return nil
}

func (c *check) file(name string) error {
	f, err := c.o.FS.Open(c.o.FS.PathJoin(c.dir, name))
	if err != nil {
		return err
	}
	readable, err := sstable.NewSimpleReadable(f)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	r, err := sstable.NewReader(context.Background(), readable, c.options.MakeReaderOptions())
	if err != nil {
		return errors.Join(err, readable.Close())
	}
	return errors.Join(r.ValidateBlockChecksums(), r.Close())
}

// records decodes everything replicated and compares counts and digest with meta.
func (c *check) records() error {
	m, ok, err := readMeta(c.db)
	if err != nil || !ok {
		c.report("meta", "meta", "%v", errors.Join(err, missingIf(!ok)))
	}
	c.meta = m
	c.sessions = make(map[session.ID]*session.Session)
	a := newAudit()
	a.onWin = func(w *window) error {
		if c.sessions[w.id] == nil {
			c.report("window", formatKey(appendResultKey(nil, w.id, 0)), "session %s is not open", w.id)
		}
		return nil
	}
	a.onNode = c.nodeRecord
	// Sessions first: the windows are judged by them.
	err = scan(c.db, tableBounds(tableSession), func(key, value []byte) error {
		if one, err := decodeSession(key, value); err == nil {
			c.sessions[one.ID] = one
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = scan(c.db, bounds{[]byte{0}, []byte{0xff}}, func(key, value []byte) error {
		if key[0] == tableHistory || key[0] == tableSegment || key[0] == tableMeta && len(key) == 1 {
			return nil
		}
		if err := a.add(key, value); err != nil {
			c.reportRecord("record", key, err)
		}
		if c.full() {
			return errStop
		}
		return nil
	})
	if err != nil || c.full() {
		return err
	}
	if err := a.end(); err != nil {
		c.reportRecord("window", nil, err)
	}
	for _, one := range a.disagreements(&c.meta) {
		c.report("counts", "meta", "%s", one)
	}
	return nil
}

func missingIf(missing bool) error {
	if missing {
		return errors.New("the record is missing")
	}
	return nil
}

// nodeRecord checks that what belongs to a znode is there.
func (c *check) nodeRecord(path string, h *nodeHeader) error {
	if h.apart {
		if err := c.apartData(path, h.dataLen); err != nil {
			return err
		}
	}
	if h.node.Kind == znode.Ephemeral {
		c.mustHave("ephemeral-index", appendEphemeralKey(nil, h.node.Owner, path))
	}
	if h.node.Kind == znode.Container || h.node.Kind == znode.TTL {
		children, err := readChildren(c.db, path)
		if at, ok := reapableAt(&h.node, children); ok && err == nil {
			c.mustHave("reap-index", appendReapKey(nil, at, path))
		}
	}
	return nil
}

func (c *check) apartData(path string, size int64) error {
	key := appendPathKey(nil, tableData, path)
	ok, err := get(c.db, key, func(key, value []byte) error {
		data, err := decodeData(key, value)
		if err == nil && int64(len(data)) != size {
			c.report("data", formatKey(key), "it has %d bytes, the znode says %d", len(data), size)
		}
		return nil // a record that does not decode is reported where it is read
	})
	if err == nil && !ok {
		c.report("data", formatKey(key), "the record is missing")
	}
	return err
}

func (c *check) mustHave(rule string, key []byte) {
	ok, err := get(c.db, key, func(_, _ []byte) error { return nil })
	if err != nil || !ok {
		c.report(rule, formatKey(key), "%v", errors.Join(err, missingIf(!ok)))
	}
}

// tree verifies the invariants of the znodes.
func (c *check) tree() error {
	s := &storedState{c: c}
	for _, p := range znode.Verify(s) {
		where := p.Path
		if where == "" {
			where = "session " + p.Session.String()
		}
		c.report("znode."+p.Rule, where, "%s", p.Detail)
	}
	return s.err
}

// indexes verifies that every index record and every data record has its znode.
func (c *check) indexes() error {
	err := scan(c.db, tableBounds(tableEphemeral), func(key, _ []byte) error {
		id, path, _ := idOfKey(key)
		n, _ := c.header(string(path))
		if n == nil || n.Kind != znode.Ephemeral || n.Owner != session.ID(id) {
			c.report("ephemeral-index", formatKey(key), "%s is no ephemeral of session %s", path, session.ID(id))
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = scan(c.db, tableBounds(tableReap), func(key, _ []byte) error {
		at, path, _ := idOfKey(key)
		n, _ := c.header(string(path))
		var children znode.Children
		if n != nil {
			children, _ = readChildren(c.db, string(path))
		}
		if when, ok := reapableAt(n, children); !ok || when != at {
			c.report("reap-index", formatKey(key), "%s cannot be reaped from %d ms on", path, at)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return scan(c.db, tableBounds(tableData), func(key, _ []byte) error {
		if path, ok := pathOfKey(key); ok {
			if n, apart := c.header(path); n == nil || !apart {
				c.report("data", formatKey(key), "no znode has its data there")
			}
		}
		return nil
	})
}

// header returns the znode at path without its data, nil if there is none that
// decodes.
func (c *check) header(path string) (n *znode.Node, apart bool) {
	if path == "" || path[0] != '/' {
		return nil, false
	}
	_, err := get(c.db, appendPathKey(nil, tableNode, path), func(key, value []byte) error {
		h, _, err := decodeNodeHeader(key, value)
		if err == nil {
			n, apart = &h.node, h.apart
		}
		return err
	})
	if err != nil {
		return nil, false
	}
	return n, apart
}
