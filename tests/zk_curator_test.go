package tests

import "testing"

// Goal: Curator's recipes hold over lost connections, sessions that end and ends of the
// server. Method: a program of ours on Debian's Curator, with three sessions.
func TestCurator(t *testing.T) {
	t.Parallel()
	newJudged(t).judge(119, java(t, "CuratorRecipes")...)
}
