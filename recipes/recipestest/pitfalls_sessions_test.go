package recipestest

import "testing"

// Goal: a leader that was away for about its timeout never leads beside another. Method:
// as in P25, in 500 steps from 9 to 14 s of a timeout of 10 s.
func TestC075LeaderAwayForItsTimeout(t *testing.T) {
	onFakes(t, FakeOptions{Members: 3}, func(t *testing.T, _ *Fake, h Harness) { awayForATimeout(t, h, 500) })
}

// Goal: a candidate that lost its session leads no more, and does not wait for ever.
// Method: as in P31, in 200 steps.
func TestC079CandidateLosesItsSession(t *testing.T) {
	onFakes(t, FakeOptions{Members: 3}, func(t *testing.T, _ *Fake, h Harness) { candidateLosesSession(t, h, 200) })
}
