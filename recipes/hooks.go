package recipes

import "time"

// hookRunner calls the hooks of one tenure, in order, on a goroutine of its own. A nil
// one does nothing. Its methods are safe for concurrent use.
type hookRunner struct {
	hooks Hooks
	news  chan renewal // capacity 1: the latest
}

type renewal struct{ rtt, left time.Duration }

func newHookRunner(h Hooks) *hookRunner {
	if h.Acquired == nil && h.Renewed == nil && h.Lost == nil {
		return nil
	}
	return &hookRunner{hooks: h, news: make(chan renewal, 1)}
}

// start begins to call the hooks; the goroutine ends after Lost.
func (r *hookRunner) start(t *Tenure) {
	if r == nil {
		return
	}
	go func() {
		if r.hooks.Acquired != nil {
			r.hooks.Acquired(t.name, t.token)
		}
		for over := false; !over; {
			select {
			case n := <-r.news:
				if r.hooks.Renewed != nil {
					r.hooks.Renewed(t.name, n.rtt, n.left)
				}
			case <-t.done:
				over = true
			}
		}
		if r.hooks.Lost != nil {
			var lost *LostError
			if lost, _ = t.overErr().(*LostError); lost != nil {
				r.hooks.Lost(t.name, t.token, lost.Why)
			}
		}
	}()
}

// renewed leaves the latest news in the mailbox. Its callers are serialized by the tenure's
// lock.
func (r *hookRunner) renewed(rtt, left time.Duration) {
	if r == nil {
		return
	}
	select {
	case <-r.news:
	default:
	}
	r.news <- renewal{rtt, left}
}
