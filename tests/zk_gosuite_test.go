//go:build unix

package tests

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
)

// goSuitePassed is how many tests of go-zookeeper/zk v1.0.4 are run, and pass.
const goSuitePassed = 45

// goSuiteLeftOut are its other tests, each with the reason.
var goSuiteLeftOut = map[string]string{
	"TestIntegration_IncrementalReconfig": "adds a server that is an ensemble of its own: a member must have caught up before it votes",
	"TestIntegration_Reconfig":            "brings a member back under the id with which it was removed, which is never allowed",
}

// Goal: go-zookeeper's own tests pass on Tenure. Method: run them unmodified, as they are in
// the module, with tenured as the server that they start.
func TestGoZooKeeperSuite(t *testing.T) {
	t.Parallel()
	leftOut := "^(" + strings.Join(slices.Sorted(maps.Keys(goSuiteLeftOut)), "|") + ")$"
	env := []string{"ZOOKEEPER_BIN_PATH=" + serverProgram(t, "zkServer.sh"), "TENURED=" + program(t, "tenured")}
	out, errs := runSuite(t, env, "go", "test", "-json", "-count=1", "-vet=off", "-skip", leftOut, "github.com/go-zookeeper/zk")
	result := suiteResult{failed: map[string]string{}}
	said := map[string]string{}
	for dec := json.NewDecoder(strings.NewReader(out)); dec.More(); {
		var event struct{ Action, Test, Output string }
		if err := dec.Decode(&event); err != nil {
			t.Fatalf("%v\n%s", err, errs)
		}
		said[event.Test] += event.Output
		switch {
		case event.Test == "" || strings.Contains(event.Test, "/"):
		case event.Action == "pass":
			result.passed++
			delete(result.failed, event.Test)
		case event.Action == "run" || event.Action == "fail" || event.Action == "skip": // what has only begun has not passed
			result.failed[event.Test] = said[event.Test]
		}
	}
	result.wants(t, goSuitePassed, goSuiteLeftOut)
	if t.Failed() {
		t.Logf("go test printed:\n%s%s", said[""], errs)
	}
}
