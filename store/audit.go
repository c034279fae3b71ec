package store

import (
	"fmt"

	"github.com/tenure-dev/tenure/znode"
)

// audit takes the records of a whole state in key order, checks that each decodes,
// and computes digest and counts anew.
type audit struct {
	digest  uint64
	counts  Counts
	windows windowReader
	onNode  func(path string, h *nodeHeader) error // nil = nothing more
	onWin   func(*window) error                    // likewise
}

func newAudit() *audit {
	a := &audit{}
	a.windows.each = func(w *window) error {
		a.digest += w.hash
		for _, k := range w.kept {
			a.digest += k.hash
		}
		a.counts.Results += int64(len(w.kept))
		if a.onWin != nil {
			return a.onWin(w)
		}
		return nil
	}
	return a
}

// isReplicated reports whether a table is part of a snapshot.
func isReplicated(table byte) bool {
	switch table {
	case tableChildren, tableData, tableEphemeral, tableNode, tableResult, tableSession, tableReap:
		return true
	}
	return false
}

// add judges one record. After an error it may be called with the next.
func (a *audit) add(key, value []byte) error {
	switch key[0] {
	case tableNode:
		return a.node(key, value)
	case tableData:
		if _, ok := pathOfKey(key); !ok {
			return badPathKey(key)
		}
		data, err := decodeData(key, value)
		if err == nil && len(data) <= InlineDataMax {
			err = &CorruptError{Key: formatKey(key), What: fmt.Sprintf("%d bytes belong into the znode's record", len(data))}
		}
		a.digest += hashRecord(key, value)
		return err
	case tableChildren:
		if _, ok := pathOfKey(key); !ok {
			return badPathKey(key)
		}
		c, err := decodeChildren(key, value)
		if err == nil && c == (znode.Children{}) {
			err = &CorruptError{Key: formatKey(key), What: "zero counters have no record"}
		}
		a.digest += hashRecord(key, value)
		return err
	case tableSession:
		a.digest += hashRecord(key, value)
		a.counts.Sessions++
		_, err := decodeSession(key, value)
		return err
	case tableResult:
		return a.windows.add(key, value)
	case tableEphemeral, tableReap:
		return checkIndexRecord(key, value)
	}
	return &CorruptError{Key: formatKey(key), What: "no such table"}
}

func badPathKey(key []byte) error {
	return &CorruptError{Key: formatKey(key), What: "the key is no path"}
}

func checkIndexRecord(key, value []byte) error {
	if _, path, ok := idOfKey(key); !ok || len(path) == 0 || path[0] != '/' || len(value) > 0 {
		return &CorruptError{Key: formatKey(key), What: "an index record is a number and a path without value"}
	}
	return nil
}

func (a *audit) node(key, value []byte) error {
	a.digest += hashRecord(key, value)
	path, ok := pathOfKey(key)
	if !ok {
		return badPathKey(key)
	}
	h, _, err := decodeNodeHeader(key, value)
	if err != nil {
		return err
	}
	a.counts.Znodes++
	a.counts.DataBytes += h.dataLen
	if h.node.Kind == znode.Ephemeral {
		a.counts.Ephemerals++
	}
	if a.onNode != nil {
		return a.onNode(path, &h)
	}
	return nil
}

// end finishes the last window. It must be called once, after all records.
func (a *audit) end() error { return a.windows.end() }

// disagreements names what m says otherwise than what was found.
func (a *audit) disagreements(m *meta) (all []string) {
	for _, c := range [...]struct {
		name        string
		found, says int64
	}{
		{"znodes", a.counts.Znodes, m.counts.Znodes},
		{"ephemerals", a.counts.Ephemerals, m.counts.Ephemerals},
		{"sessions", a.counts.Sessions, m.counts.Sessions},
		{"bytes of data", a.counts.DataBytes, m.counts.DataBytes},
		{"results", a.counts.Results, m.counts.Results},
	} {
		if c.found != c.says {
			all = append(all, fmt.Sprintf("%s: there are %d, meta says %d", c.name, c.found, c.says))
		}
	}
	if a.digest != m.digest {
		all = append(all, fmt.Sprintf("digest: the records have %#x, meta says %#x", a.digest, m.digest))
	}
	return all
}
