package recipestest

import (
	"slices"
	"testing"
)

// Goal: the recipes behave where others failed, on a backend like Tenure. Method: the
// suite, in fake time.
func TestConformanceFakeExact(t *testing.T) {
	Conformance(t, FakeHarness(FakeOptions{Exact: true, Members: 3}))
}

// Goal: the same on a backend like ZooKeeper. Method: the suite, in fake time.
func TestConformanceFakeInexact(t *testing.T) {
	Conformance(t, FakeHarness(FakeOptions{Members: 3}))
}

// Goal: the suite has a test for each of its 98 numbers, and a fake can show each.
// Method: count; ask both fakes.
func TestSuiteIsComplete(t *testing.T) {
	shown := map[int]bool{}
	names := map[string]bool{}
	for _, exact := range []bool{true, false} {
		h := FakeHarness(FakeOptions{Exact: exact, Members: 3})
		h.Run(t, func(t *testing.T) {
			can := has(h, h.Open(t))
			for _, p := range pitfalls() {
				names[p.name] = true
				if !slices.ContainsFunc(p.needs, func(v verb) bool { return !can[v] }) {
					shown[p.number] = true
				}
			}
		})
	}
	for number := 1; number <= 98; number++ {
		if !shown[number] {
			t.Errorf("P%02d has no test that a fake can show", number)
		}
	}
	if len(names) != len(pitfalls()) {
		t.Errorf("%d names for %d tests", len(names), len(pitfalls()))
	}
}
