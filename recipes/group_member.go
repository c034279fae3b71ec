package recipes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"iter"
)

// Membership is this process as a member of a group. After the end of its session it
// joins again by itself, as another incarnation, and so it does if somebody deletes its
// node. It is safe for concurrent use, and has one goroutine until Leave.
type Membership struct {
	id    string
	group *Group
	node  *Node
}

// ID returns the member's id.
func (m *Membership) ID() string { return m.id }

// State returns what is known of the member's node, and why it is not there if it is
// not. It does no I/O. The group's views are what the backend has: this is not in them.
func (m *Membership) State() NodeState { return m.node.State() }

// Joined reports whether the member existed at the last look, in a session that is not
// over as far as is known. While the connection is down it may have expired.
func (m *Membership) Joined() bool { return m.State().Exists }

// SetData replaces the member's data, as Node.SetData does: if ctx ends before the
// backend has them they stay wanted, and are set after the reconnect, or with the next
// incarnation.
func (m *Membership) SetData(ctx context.Context, data []byte) error {
	return m.node.SetData(ctx, m.encode(data))
}

// Incarnations yields the Czxid of the present incarnation, and of each later one; if
// they follow each other fast some may be missed, the last one is not. It ends with ctx
// and with Leave.
func (m *Membership) Incarnations(ctx context.Context) iter.Seq[int64] {
	return func(yield func(int64) bool) {
		var last int64
		for {
			var next int64
			err := m.node.await(ctx, func(s NodeState) (bool, error) {
				next = s.Czxid
				return s.Exists && next != last, nil
			})
			if err != nil || !yield(next) {
				return
			}
			last = next
		}
	}
}

// Leave ends the membership and deletes its node, and waits for that as Node.Close does:
// two seconds at most. It may be called again.
func (m *Membership) Leave(ctx context.Context) error { return m.node.Close(ctx) }

// envelope is what the node of a member with an Instance has in it, in JSON. A member
// without one is plain: its node has its data and nothing else.
type envelope struct {
	Format   int    `json:"tenureMember"` // 1
	Instance string `json:"instance"`
	Boot     uint64 `json:"boot,string"`
	Data     []byte `json:"data"`
}

// envelopePrefix is what every envelope begins with.
var envelopePrefix = []byte(`{"tenureMember":1,`)

// encode returns what the node shall have. Plain data that look like an envelope get one.
func (m *Membership) encode(data []byte) []byte {
	o := &m.group.o
	if o.Instance == "" && !bytes.HasPrefix(data, envelopePrefix) {
		return data
	}
	b, err := json.Marshal(envelope{Format: 1, Instance: o.Instance, Boot: o.Boot, Data: data})
	if err != nil {
		panic(err) // strings, numbers and bytes always encode
	}
	return b
}

// memberData returns the member's own data of what its node has.
func memberData(node []byte) []byte {
	if e, err := openEnvelope(node); err == nil {
		return e.Data
	}
	return node
}

func openEnvelope(node []byte) (e envelope, err error) {
	if !bytes.HasPrefix(node, envelopePrefix) {
		return e, errors.New("plain data")
	}
	err = json.Unmarshal(node, &e)
	return e, err
}

// leftBehind reports whether a node is of an earlier process of the same instance.
func (m *Membership) leftBehind(node []byte) bool {
	o := &m.group.o
	e, err := openEnvelope(node)
	return err == nil && e.Instance == o.Instance && e.Boot < o.Boot
}
