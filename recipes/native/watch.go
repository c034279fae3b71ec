package native

import (
	"sync/atomic"

	"github.com/tenure-dev/tenure/client"
	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/wire"
)

// watchOf passes w on. It takes no goroutine.
func watchOf(w client.OneShot) recipes.Watch {
	c := make(chan recipes.EventKind, 1)
	var cancelled atomic.Bool
	w.Notify(func(ev wire.Event, ok bool) {
		switch {
		case ok:
			c <- kindOf(ev) // never blocks: the only value
		case !cancelled.Load():
			c <- recipes.Ended
		}
		close(c)
	})
	return recipes.Watch{C: c, Cancel: func() {
		cancelled.Store(true)
		w.Cancel()
	}}
}

// kindOf is what an event means to recipes. That events are missing is told to
// persistent watches only: for the others the server compares with what there was.
func kindOf(ev wire.Event) recipes.EventKind {
	if ev.Type == wire.EventGap {
		return recipes.Gap
	}
	return recipes.Changed
}
