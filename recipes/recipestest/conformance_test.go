package recipestest

import "testing"

// Goal: the recipes behave where others failed, on a backend like Tenure. Method: the
// suite, in fake time.
func TestConformanceFakeExact(t *testing.T) {
	Conformance(t, FakeHarness(FakeOptions{Exact: true, Members: 3}))
}

// Goal: the same on a backend like ZooKeeper. Method: the suite, in fake time.
func TestConformanceFakeInexact(t *testing.T) {
	Conformance(t, FakeHarness(FakeOptions{Members: 3}))
}
