package recipes

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/tenure-dev/tenure/znode"
)

// Candidate is one that leads or wants to. A plain value; do not write to Data.
type Candidate struct {
	ID    string
	Token Token // 0 while it has not led
	Data  []byte
	Node  string // name of its znode
}

// View is an election as it was at Zxid. A plain value; do not write to its slices.
type View struct {
	// Leader is the candidate that has claimed the lead and is still there. Nil: nobody
	// leads, also while the next one holds off.
	Leader     *Candidate
	Candidates []Candidate // in line, the leader too
	// Zxid grows from view to view of one stream.
	Zxid int64
	// Fresh is false while the connection is lost: this is the last known view then.
	Fresh bool
}

// View returns the election as it is now, which is not older than anything committed before
// the call.
func (e *Election) View(ctx context.Context) (View, error) {
	o := &observer{line: e.line}
	var v View
	err := retryRead(ctx, func() (err error) {
		if err := e.line.store.Sync(ctx, e.line.path); err != nil {
			return err
		}
		v, err = o.read(ctx)
		if errors.Is(err, znode.NoNode) {
			v, err = View{Fresh: true}, nil
		}
		return err
	})
	return v, err
}

// Observe yields the present view, then a new one when leader, candidates or freshness
// change, until ctx ends (silently), the store is closed or an error does not pass with
// time. Views in between may be skipped, the last is not. It goes on in the next session.
func (e *Election) Observe(ctx context.Context) iter.Seq2[View, error] {
	return func(yield func(View, error) bool) {
		o := &observer{line: e.line}
		for v, err := range stream(ctx, e.line.store, e.line.path, o) {
			view := v.value
			view.Fresh = v.fresh
			if !yield(view, err) {
				return
			}
		}
	}
}

// same reports whether a consumer sees no difference.
func (v View) same(other View) bool {
	same := func(a, b Candidate) bool { return a.Node == b.Node && a.Token == b.Token }
	leads := func(v View) string {
		if v.Leader == nil {
			return ""
		}
		return v.Leader.Node
	}
	return leads(v) == leads(other) && slices.EqualFunc(v.Candidates, other.Candidates, same)
}

// observer reads an election again and again. It belongs to one goroutine.
type observer struct {
	line *line
	seen map[string]placeData // by name: a place's id and data never change
	last View
}

// lagRetry is how soon a member that lags is asked again.
const lagRetry = 50 * time.Millisecond

// look is of looker. While there is no directory it watches for one.
func (o *observer) look(ctx context.Context, w *watches) (round[View], error) {
	s := o.line.store
	_, stat, exists, watch, err := readW(ctx, s, o.line.path)
	if err != nil {
		return round[View]{}, err
	}
	w.arm("record", watch)
	v := View{Zxid: o.last.Zxid}
	if exists {
		_, _, watch, err = s.ChildrenW(ctx, o.line.path)
		if err == nil {
			w.arm("line", watch)
			v, err = o.read(ctx)
		}
		if errors.Is(err, znode.NoNode) {
			v, err = View{Zxid: max(stat.Mzxid, stat.Pzxid)}, nil
		}
		if err != nil {
			return round[View]{}, err
		}
	}
	if v.Zxid < o.last.Zxid {
		return round[View]{value: o.last, again: lagRetry}, nil
	}
	r := round[View]{value: v, changed: !v.same(o.last)}
	o.last = v
	return r, nil
}

// read reads the line until record and list are of one moment.
func (o *observer) read(ctx context.Context) (View, error) {
	for {
		data, before, err := o.line.store.Get(ctx, o.line.path)
		if err != nil {
			return View{}, err
		}
		r, err := parseRecord(o.line.path, data)
		if err != nil {
			return View{}, err
		}
		names, stat, err := o.line.store.Children(ctx, o.line.path)
		if err != nil {
			return View{}, err
		}
		if stat.Mzxid != before.Mzxid {
			continue
		}
		v := View{Zxid: max(stat.Mzxid, stat.Pzxid), Fresh: true}
		err = o.fill(ctx, &v, r, parseLine(names))
		return v, err
	}
}

// fill reads the candidates that were not seen yet.
func (o *observer) fill(ctx context.Context, v *View, r record, line []entry) error {
	seen := make(map[string]placeData, len(line))
	for _, e := range line {
		d, known := o.seen[e.name]
		if !known {
			data, _, err := o.line.store.Get(ctx, o.line.join(e.name))
			if errors.Is(err, znode.NoNode) {
				continue // it went meanwhile
			}
			if err != nil {
				return err
			}
			d = parsePlace(data)
		}
		seen[e.name] = d
		h, holds := r.holds(e.name)
		v.Candidates = append(v.Candidates, Candidate{ID: d.ID, Token: h.Token, Data: d.Data, Node: e.name})
		if holds {
			leader := v.Candidates[len(v.Candidates)-1]
			v.Leader = &leader
		}
	}
	o.seen = seen
	return nil
}
