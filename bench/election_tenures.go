package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-dev/tenure/recipes"
)

const (
	periods = 4 // of renewals that are measured
	checks  = 1_000_000
)

// tenures measures what it costs to hold very many on one session, and to check one.
func (r *electionRun) tenures(ctx context.Context) (err error) {
	clients, closeAll, err := r.clients(ctx, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ignoreAfter(err, closeAll())) }()
	c := clients[0]
	renewed := make(chan time.Time, 1)
	watched := recipes.ElectionOptions{Options: recipes.Options{Hooks: recipes.Hooks{
		Renewed: func(string, time.Duration, time.Duration) {
			select {
			case renewed <- time.Now():
			default:
			}
		},
	}}}
	held := make([]*recipes.Tenure, r.Tenures)
	err = parallel(ctx, r.Tenures, prepareDepth, func(i int) error {
		var o recipes.ElectionOptions
		if i == 0 {
			o = watched
		}
		e, err := recipes.NewElection(c, fmt.Sprintf("%s/tenure-%d", r.root, i), o)
		if err == nil {
			held[i], err = e.Campaign(ctx)
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := r.renewals(ctx, c, renewed); err != nil {
		return err
	}
	r.result.CheckNs, err = checkTime(held[0])
	return err
}

// renewals measures some periods, from one renewal to another.
func (r *electionRun) renewals(ctx context.Context, c *electionClient, renewed <-chan time.Time) error {
	select {
	case <-renewed: // while tenures were still being made
	default:
	}
	var first, last time.Time
	var before, sent, received int64
	var seen bool // the client's requests can be
	for i := range periods + 1 {
		select {
		case last = <-renewed:
		case <-c.Session().Done():
			return c.Session().Err()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if i == 0 {
			first = last
			before, seen = c.requests()
			sent, received = c.link.sent.Load(), c.link.received.Load()
		}
	}
	t := &r.result.Tenures
	t.Count = r.Tenures
	t.PeriodUs = float64(last.Sub(first)) / 1e3 / periods
	t.SentBytes = float64(c.link.sent.Load()-sent) / periods
	t.ReceivedBytes = float64(c.link.received.Load()-received) / periods
	if now, _ := c.requests(); seen {
		per := float64(now-before) / periods
		t.Requests = &per
	}
	return nil
}

// checkTime returns what one Check takes, in nanoseconds.
func checkTime(t *recipes.Tenure) (float64, error) {
	began := time.Now()
	for range checks {
		if err := t.Check(); err != nil {
			return 0, err
		}
	}
	return float64(time.Since(began)) / checks, nil
}
