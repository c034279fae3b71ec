//go:build unix

package tests

import (
	"encoding/xml"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tenure-dev/tenure/recipes/recipestest"
)

// How many tests of Debian's kazoo 2.8.0 are run, and pass: on a server that runs, and in
// managed mode, where the tests start and stop it. On three servers those of kazooEnsemble
// are.
const (
	kazooRunningPassed = 459
	kazooManagedPassed = 284
)

// kazooLeftOut are the tests that are run nowhere, each with the reason.
var kazooLeftOut = map[string]string{
	"test_build.py::TestBuildEnvironment::test_zookeeper_version":              "about the machine that builds kazoo",
	"test_client.py::TestReconfig::test_add_remove_observer":                   "adds 0.0.0.0, which others cannot dial",
	"test_client.py::TestReconfig::test_bad_input":                             "access is judged before the arguments",
	"test_connection.py::TestReadOnlyMode::test_read_only":                     "read-only mode",
	"test_sasl.py::TestLegacySASLDigestAuthentication::test_connect_sasl_auth": "SASL",
	"test_sasl.py::TestLegacySASLDigestAuthentication::test_invalid_sasl_auth": "SASL",
	"test_sasl.py::TestSASLDigestAuthentication::test_connect_sasl_auth":       "SASL",
	"test_sasl.py::TestSASLDigestAuthentication::test_invalid_sasl_auth":       "SASL",
	"test_sasl.py::TestSASLGSSAPIAuthentication::test_connect_gssapi_auth":     "Kerberos",
	"test_sasl.py::TestSASLGSSAPIAuthentication::test_invalid_gssapi_auth":     "Kerberos",
}

// kazooStopping are the tests that stop the server: run in managed mode alone.
var kazooStopping = []string{
	"test_client.py::TestClient::test_request_queuing_session_expired",
	"test_client.py::TestClient::test_request_queuing_session_recovered",
	"test_eventlet_handler.py::TestEventletClient::test_request_queuing_session_expired",
	"test_eventlet_handler.py::TestEventletClient::test_request_queuing_session_recovered",
	"test_gevent_handler.py::TestGeventClient::test_request_queuing_session_expired",
	"test_gevent_handler.py::TestGeventClient::test_request_queuing_session_recovered",
}

// kazooEnsemble are the tests that need three servers: run on those alone.
var kazooEnsemble = []string{
	"test_client.py::TestClient::test_update_host_list",
	"test_client.py::TestReconfig::test_no_super_auth",
	"test_eventlet_handler.py::TestEventletClient::test_update_host_list",
	"test_gevent_handler.py::TestGeventClient::test_update_host_list",
}

// kazooSlow are modules that mostly wait: each is run by itself, beside the others.
var kazooSlow = []string{"test_partitioner", "test_watchers"}

// kazooManaged are the modules of the client, which have the tests that stop the server.
var kazooManaged = []string{"test_client", "test_connection", "test_eventlet_handler", "test_gevent_handler"}

// Goal: kazoo's own tests pass on Tenure. Method: run them unmodified, all on a server that
// runs, and those of the client in managed mode, with tenured as the java that they start.
func TestKazooSuite(t *testing.T) {
	t.Parallel()
	python := interpreter(t, "import kazoo, pytest, mock, objgraph, eventlet, gevent",
		[]string{"/usr/bin/python3", "-c"}, []string{"python3", "-c"})
	plugin, err := filepath.Abs("testdata/suites")
	if err != nil {
		t.Fatal(err)
	}
	ports, err := recipestest.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	d := startDaemon(t, t.TempDir())
	running := newKazooRun(t, python, "PYTHONPATH="+plugin, "PYTEST_PLUGINS=running_server", "TENURE_ADDRESS="+d.zkAddress)
	env := []string{"PATH=" + serverProgram(t, "java") + ":" + os.Getenv("PATH"), "TENURED=" + program(t, "tenured"), "ZOOKEEPER_CLASSPATH=none"}
	managed := newKazooRun(t, python, append(env, "ZOOKEEPER_CLUSTER_SIZE=1", fmt.Sprint("ZOOKEEPER_PORT_OFFSET=", ports[0]))...)
	_, port, _ := strings.Cut(quietPort(t), ":")
	ensemble := newKazooRun(t, python, append(env, "ZOOKEEPER_CLUSTER_SIZE=3", "ZOOKEEPER_PORT_OFFSET="+port)...)
	maps.DeleteFunc(managed.leftOut, func(test, _ string) bool {
		module, _, _ := strings.Cut(test, ".py")
		return !slices.Contains(kazooManaged, module)
	})
	for _, test := range kazooStopping {
		running.leftOut[test] = "stops the server: run in managed mode"
	}
	var onThree []string
	for _, test := range kazooEnsemble {
		running.leftOut[test] = "three servers: run on those"
		managed.leftOut[test] = running.leftOut[test]
		onThree = append(onThree, strings.Replace(test, ".py", "", 1))
	}
	fast := maps.Clone(running.leftOut)
	for _, module := range kazooSlow {
		running.start(running.leftOut, module)
		fast[module+".py"] = "run by itself"
	}
	running.start(fast, "")
	managed.start(managed.leftOut, kazooManaged...)
	ensemble.start(nil, onThree...)

	running.ends.Wait()
	managed.ends.Wait()
	ensemble.ends.Wait()
	t.Log("on a server that runs:")
	running.result.wants(t, kazooRunningPassed, running.leftOut)
	t.Log("in managed mode:")
	managed.result.wants(t, kazooManagedPassed, managed.leftOut)
	t.Log("on three servers:")
	ensemble.result.wants(t, len(kazooEnsemble), nil)
}

// kazooRun is a run of kazoo's tests in parts, side by side.
type kazooRun struct {
	t       *testing.T
	command []string // begins it
	env     []string
	leftOut map[string]string // by test: the reason
	ends    sync.WaitGroup
	mu      sync.Mutex // guards the result until all parts have ended
	result  suiteResult
}

func newKazooRun(t *testing.T, python []string, env ...string) *kazooRun {
	t.Helper()
	root, err := exec.Command(python[0], append(python[1:], "import kazoo; print(kazoo.__path__[0])")...).Output()
	if err != nil {
		t.Fatal(err)
	}
	// The version is that of a server that has all that is tested.
	env = append(env, "ZOOKEEPER_VERSION=3.8.0", "PYTHONDONTWRITEBYTECODE=1")
	command := []string{python[0], "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", filepath.Dir(string(root))}
	return &kazooRun{t: t, command: command, env: env, leftOut: maps.Clone(kazooLeftOut),
		result: suiteResult{failed: map[string]string{}}}
}

// start starts a part: modules without what is left out, "" being all.
func (r *kazooRun) start(leftOut map[string]string, modules ...string) {
	results := filepath.Join(r.t.TempDir(), "results.xml")
	command := append(slices.Clone(r.command), "--junitxml", results, "--pyargs")
	for _, module := range modules {
		command = append(command, strings.TrimSuffix("kazoo.tests."+module, "."))
	}
	for test := range leftOut {
		command = append(command, "--deselect", "kazoo/tests/"+test)
	}
	r.ends.Go(func() {
		stdout, stderr := runSuite(r.t, r.env, command...)
		r.mu.Lock()
		defer r.mu.Unlock()
		if err := r.read(results); err != nil {
			r.t.Errorf("%v: %v\n%s%s", modules, err, stdout, stderr)
		}
	})
}

// read adds the results that pytest wrote.
func (r *kazooRun) read(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var report struct {
		Tests []struct {
			Class string   `xml:"classname,attr"`
			Name  string   `xml:"name,attr"`
			Other []string `xml:",any"` // a failure, an error, that it was skipped
		} `xml:"testsuite>testcase"`
	}
	if err := xml.Unmarshal(text, &report); err != nil {
		return err
	}
	for _, test := range report.Tests {
		if test.Other == nil {
			r.result.passed++
			continue
		}
		r.result.failed[test.Class+"."+test.Name] = strings.Join(test.Other, "\n")
	}
	return nil
}
