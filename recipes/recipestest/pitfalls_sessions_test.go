package recipestest

import "testing"

// onBothFakes runs a test of the suite on the fake in both flavours.
func onBothFakes(t *testing.T, test func(t *testing.T, h Harness)) {
	for _, exact := range []bool{true, false} {
		h := FakeHarness(FakeOptions{Exact: exact, Members: 3})
		t.Run(h.Name, func(t *testing.T) { h.Run(t, func(t *testing.T) { test(t, h) }) })
	}
}

// Goal: a leader that was away for about its timeout never leads beside another. Method:
// as in P25, in 500 steps from 9 to 14 s of a timeout of 10 s.
func TestC075LeaderAwayForItsTimeout(t *testing.T) {
	onBothFakes(t, func(t *testing.T, h Harness) { awayForATimeout(t, h, 500) })
}

// Goal: a candidate that lost its session leads no more, and does not wait for ever.
// Method: as in P31, in 200 steps.
func TestC079CandidateLosesItsSession(t *testing.T) {
	onBothFakes(t, func(t *testing.T, h Harness) { candidateLosesSession(t, h, 200) })
}
