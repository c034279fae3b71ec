package recipestest

import "testing"

// partOnFakes runs a part of the suite in fake time on both flavours of the fake.
func partOnFakes(t *testing.T, test func(t *testing.T, h Harness)) {
	for _, exact := range []bool{true, false} {
		h := FakeHarness(FakeOptions{Exact: exact, Members: 3})
		t.Run(h.Name, func(t *testing.T) {
			h.Run(t, func(t *testing.T) { test(t, h) })
		})
	}
}

// Goal: a contender whose create was applied without an answer has one node and gets the
// lock, and so do those after it. Method: 500 rounds; P01 plays some on each backend.
func TestC081OrphanedContender(t *testing.T) {
	partOnFakes(t, func(t *testing.T, h Harness) { orphanedContender(t, h, 500) })
}

// Goal: a create whose answer was lost is done once, and is said to be done or uncertain,
// never to exist already. Method: 1 000 rounds of plain, ephemeral and sequential
// creates; P01 plays some on each backend.
func TestC037LostAnswerOfCreate(t *testing.T) {
	partOnFakes(t, func(t *testing.T, h Harness) { answerOfCreateLost(t, h, 1000) })
}
