package recipes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// LockAll takes several mutexes of one Store as one tenure, all or none. It takes them in
// the order of their paths, so that two callers never wait for each other, and gives them
// up in reverse. The tenure's Name, Token and Options are those of the first path; Tokens
// has all. Its Guard covers all of them.
func LockAll(ctx context.Context, ms ...*Mutex) (*Tenure, error) {
	lines, err := lockOrder(ms)
	if err != nil {
		return nil, err
	}
	sess, err := connected(ctx, lines[0].store)
	if err != nil {
		return nil, err
	}
	var wins []*won
	giveUp := func(err error) (*Tenure, error) {
		for i, w := range slices.Backward(wins) {
			lines[i].abandon(w.place)
		}
		return nil, err
	}
	for _, l := range lines {
		w, err := l.win(ctx, sess, false)
		if err != nil {
			return giveUp(err)
		}
		wins = append(wins, w)
	}
	// The first may have been taken long ago: prove all at one moment.
	spec := joinSpecs(lines, wins)
	u := sess.Upkeep()
	before := u.now()
	proof, verdicts, err := sess.Renew(ctx, spec.held...)
	if err != nil {
		return giveUp(err)
	}
	for i, verdict := range verdicts {
		if verdict != nil {
			return giveUp(&LostError{Name: lines[i].path, Token: wins[i].token, Why: ErrGone})
		}
	}
	t, err := startTenure(ctx, spec, u.sentAt(proof, before), proof.TTL)
	if err != nil {
		return giveUp(err)
	}
	return t, nil
}

// lockOrder sorts the mutexes' lines by path.
func lockOrder(ms []*Mutex) ([]*line, error) {
	if len(ms) == 0 {
		return nil, fmt.Errorf("%w: LockAll of nothing", ErrInvalid)
	}
	var lines []*line
	for _, m := range ms {
		l := *m.line
		lines = append(lines, &l)
	}
	slices.SortFunc(lines, func(a, b *line) int { return strings.Compare(a.path, b.path) })
	for i, l := range lines {
		// Each claim must say for how long the one tenure may be believed in.
		l.o.Timing = lines[0].o.Timing
		switch {
		case l.store != lines[0].store:
			return nil, fmt.Errorf("%w: LockAll of mutexes of several stores", ErrInvalid)
		case i > 0 && l.path == lines[i-1].path:
			return nil, fmt.Errorf("%w: LockAll has %s twice: it would wait for itself", ErrInvalid, l.path)
		}
	}
	return lines, nil
}

// joinSpecs makes one tenure of several.
func joinSpecs(lines []*line, wins []*won) tenureSpec {
	specs := make([]tenureSpec, len(lines))
	all := lines[0].spec(wins[0])
	all.tokens = map[string]Token{}
	all.held, all.guard = nil, nil
	for i, l := range lines {
		specs[i] = l.spec(wins[i])
		all.tokens[l.path] = wins[i].token
		all.held = append(all.held, specs[i].held...)
		all.guard = append(all.guard, specs[i].guard...)
	}
	all.leave = func(ctx context.Context, clean bool) error {
		var errs []error
		for _, s := range slices.Backward(specs) {
			errs = append(errs, s.leave(ctx, clean))
		}
		return errors.Join(errs...)
	}
	return all
}
