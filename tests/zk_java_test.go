package tests

import "testing"

// Goal: the Java client works unchanged: every operation, watches over reconnects,
// sessions over ends of the server. Method: a program of ours on Debian's client.
func TestJavaClient(t *testing.T) {
	t.Parallel()
	newJudged(t).judge(149, java(t, "JavaClient")...)
}
