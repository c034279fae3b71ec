package recipes

import (
	"testing"
	"time"
)

// BenchmarkTenureCheck is the cost of asking whether a tenure is held, with the clocks of
// the machine.
func BenchmarkTenureCheck(b *testing.B) {
	held := &Tenure{tenureSpec: tenureSpec{clock: machineClock}}
	mono, wall := machineClock()
	held.limit.Store(&stamp{mono + int64(time.Hour), wall + int64(time.Hour)})
	b.ReportAllocs()
	for b.Loop() {
		if err := held.Check(); err != nil {
			b.Fatal(err)
		}
	}
}
