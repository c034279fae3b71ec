package zk_test

import (
	"testing"

	"github.com/tenure-dev/tenure/recipes/recipestest"
)

// Goal: recipes keep their promises on a real ZooKeeper. Method: the conformance suite on
// one server.
func TestConformanceOneServer(t *testing.T) {
	t.Parallel()
	recipestest.Conformance(t, harness("one", single, "/conformance/one"))
}

// Goal: and on an ensemble. Method: the suite with its peers on all three members.
func TestConformanceEnsemble(t *testing.T) {
	t.Parallel()
	recipestest.Conformance(t, harness("three", ensemble, "/conformance/three"))
}
