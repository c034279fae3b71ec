package recipes

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// record is the data of a line's directory: what outlives the places. Every claim and
// every clean release writes it in the transaction that it is part of, and only they do;
// whoever else must change it (a floor) raises its version by two, so that a
// version one above a claim's is its holder's release and nothing else.
type record struct {
	// Token is the highest that was given.
	Token Token `json:"token,string"`
	// Unclaimed: a floor was set where there was no record. Former holders are not known.
	Unclaimed bool `json:"unclaimed,omitempty"`
	// Holders are the claims that were not released cleanly, in the order they were made.
	// One whose place is gone is a ghost: nobody can say whether its work has stopped.
	Holders []holding `json:"holders,omitempty"`
}

// holding is one claim.
type holding struct {
	Node    string `json:"node,omitempty"` // name of the place
	ID      string `json:"id"`
	Token   Token  `json:"token,string,omitempty"`
	Session int64  `json:"session,string"`
	// BeliefMs bounds for how long of true time after its last committed proof the holder
	// may believe: D/(1-drift), rounded up.
	BeliefMs int64 `json:"beliefMs"`
	// Exact: its belief has ended when its session has expired.
	Exact bool `json:"exact,omitempty"`
}

// nextVersion is what a write makes of a version. Servers leave out -1, which would be
// taken for any (ZOOKEEPER-4743).
func nextVersion(v int32) int32 {
	if v == -2 {
		return 0
	}
	return v + 1
}

// newHolding is a claim that is made in the session.
func newHolding(sess Session, id string, t tenureTiming) holding {
	return holding{ID: id, Session: sess.ID(), BeliefMs: t.belief().Milliseconds() + 1, Exact: t.exact}
}

func (h holding) belief() time.Duration { return time.Duration(h.BeliefMs) * time.Millisecond }

func parseRecord(path string, data []byte) (record, error) {
	var r record
	if len(data) == 0 {
		return r, nil
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("%w: the data of %s are not the record of a line: %w", ErrInvalid, path, err)
	}
	return r, nil
}

func (r record) encode() []byte {
	b, err := json.Marshal(r)
	if err != nil {
		panic(fmt.Sprintf("encode %+v: %v", r, err)) // plain strings and numbers
	}
	return b
}

// holds returns the claim of a place.
func (r record) holds(node string) (holding, bool) {
	for _, h := range r.Holders {
		if h.Node == node {
			return h, true
		}
	}
	return holding{}, false
}

// without returns the record as it is when these places do not hold.
func (r record) without(nodes ...string) record {
	r.Holders = slices.DeleteFunc(slices.Clone(r.Holders), func(h holding) bool {
		return slices.Contains(nodes, h.Node)
	})
	return r
}

// ghosts returns the claims whose places are not in the line.
func (r record) ghosts(line []entry) (gone []holding) {
	for _, h := range r.Holders {
		if indexOf(line, h.Node) < 0 {
			gone = append(gone, h)
		}
	}
	return gone
}

// placeData is the data of a place.
type placeData struct {
	ID   string `json:"id"`
	Data []byte `json:"data,omitempty"`
	// Claim is set in the transaction of an exclusive claim: it tells the next in line
	// what it needs to know to take over in one transaction.
	Claim *claimData `json:"claim,omitempty"`
}

// claimData is what a claim made of the record, without its other holders: there are none.
type claimData struct {
	Token   Token `json:"token,string"`
	Version int32 `json:"version"` // of the record
}

func parsePlace(data []byte) (p placeData) {
	// Data that are not ours have no claim and no id: nothing follows from them.
	_ = json.Unmarshal(data, &p)
	return p
}

func (p placeData) encode() []byte {
	b, err := json.Marshal(p)
	if err != nil {
		panic(fmt.Sprintf("encode %+v: %v", p, err))
	}
	return b
}
