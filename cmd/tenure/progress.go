package main

import (
	"time"

	"github.com/schollz/progressbar/v3"
)

// progress shows on a terminal how many bytes have passed; elsewhere it shows nothing.
// It is used by one goroutine.
type progress struct{ bar *progressbar.ProgressBar }

// newProgress starts a progress bar for size bytes, -1 if that is unknown.
func (a *app) newProgress(size int64, what string) *progress {
	if !a.stderrIsTerminal {
		return &progress{}
	}
	return &progress{progressbar.NewOptions64(size,
		progressbar.OptionSetWriter(a.stderr), progressbar.OptionSetDescription(what),
		progressbar.OptionShowBytes(true), progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionClearOnFinish())}
}

// Write counts p. It never fails: a terminal that cannot show a bar fails no copy.
func (p *progress) Write(b []byte) (int, error) {
	if p.bar != nil {
		_ = p.bar.Add(len(b))
	}
	return len(b), nil
}

// clear removes the bar, so that what follows stands on a line of its own.
func (p *progress) clear() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}
