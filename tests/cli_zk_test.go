package tests

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/recipes/recipestest"
)

// zkCLI returns a real ZooKeeper as the command line tool's server. A chroot is "" or a
// path, which this creates.
func zkCLI(t *testing.T, chroot string) (*cliServer, *recipestest.ZooKeeper) {
	t.Helper()
	z := recipestest.StartZooKeeper(t, recipestest.ZooKeeperOptions{Servers: 1})
	return zkCLIAt(t, z.Addrs()[0], chroot), z
}

// zkCLIAt is zkCLI for a ZooKeeper that runs at address.
func zkCLIAt(t *testing.T, address, chroot string) *cliServer {
	t.Helper()
	s := &cliServer{&daemon{t: t, dir: filepath.Join(t.TempDir(), "none"), address: "zk://" + address}}
	if chroot != "" {
		s.must("create", "-p", chroot)
		s.address += chroot
	}
	return s
}

var (
	zxids  = regexp.MustCompile(`0x[0-9a-f]+`)
	times  = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z`)
	blanks = regexp.MustCompile(` +`)
)

// comparable is what a command printed without what differs between two servers: zxids
// and session ids, but for 0, times, widths, and the server's name.
func comparable(s *cliServer, text string) string {
	text = zxids.ReplaceAllStringFunc(text, func(zxid string) string {
		if zxid == "0x0" {
			return zxid
		}
		return "ZXID"
	})
	text = strings.ReplaceAll(times.ReplaceAllString(text, "TIME"), strings.TrimPrefix(s.address, "zk://"), "SERVER")
	return blanks.ReplaceAllString(text, " ")
}

// cliStep is one command of a script. stderr says that standard error is compared, too:
// it is where both servers give the same answer to the same request.
type cliStep struct {
	stdin  string
	line   string
	code   int
	stderr bool
}

// bothSay runs a script on both servers and wants the same of both.
func bothSay(t *testing.T, tenure, zookeeper *cliServer, script []cliStep) {
	t.Helper()
	for _, step := range script {
		var said [2]string
		for i, s := range []*cliServer{tenure, zookeeper} {
			code, stdout, stderr := s.run(step.stdin, strings.Fields(step.line)...)
			if code != step.code {
				t.Errorf("%s: %s on %s: exit %d, %q; want %d", t.Name(), step.line, s.address, code, stderr, step.code)
			}
			said[i] = fmt.Sprintf("exit %d\n%s", code, comparable(s, stdout))
			if step.stderr {
				said[i] += comparable(s, stderr)
			}
		}
		if said[0] != said[1] {
			t.Errorf("%s: Tenure says\n%s\nZooKeeper says\n%s", step.line, said[0], said[1])
		}
	}
}

// Goal: every command of the tree prints the same and exits the same on a ZooKeeper as
// on Tenure. Method: one script on both, at the root and below a chroot; zxids, times
// and session ids are left out of the comparison.
func TestCommandsOfTheTreeAreTheSameOnZooKeeper(t *testing.T) {
	tenure, zookeeper := newCLIServer(t), zkCLIAt(t, recipestest.StartZooKeeper(t, recipestest.ZooKeeperOptions{}).Addrs()[0], "")
	bothSay(t, tenure, zookeeper, treeScript)
	tenure.must("create", "-p", "/deep/root")
	tenure.address += "/deep/root"
	bothSay(t, tenure, zkCLIAt(t, strings.TrimPrefix(zookeeper.address, "zk://"), "/deep/root"), treeScript)
}

// treeScript leaves the tree as it was but for counters.
var treeScript = []cliStep{
	{line: "create /a text"},
	{line: "create -o json /a/null"},
	{line: "create /a/empty -", stdin: ""},
	{line: "create /a/bytes -", stdin: "\x00\xff\x01"},
	{line: "create -p /a/p/q/r deep"},
	{line: "create -s /a/s-"},
	{line: "create -s -o json /a/p/ x"},
	{line: "create -c /kinds"},
	{line: "create -c -o json /kinds/c data"},
	{line: "create --ttl 1h /kinds/ttl data"},
	{line: "create -s --ttl 90s -o json /kinds/ttl-"},
	{line: "ls -R /kinds"}, {line: "get -o json /kinds/ttl"}, {line: "rm -r /kinds"},
	{line: "create --acl world:anyone:cdrwa,ip:127.0.0.1:r /a/acl"},
	{line: "create --auth digest:u:secret --acl auth::cdrwa /a/mine"},
	{line: "create -e -o json /a/e data -- /bin/echo held"},
	{line: "create -e -s /a/e- -- /bin/false", code: 1},
	{line: "ls /a"}, {line: "ls -o json /a"}, {line: "ls -l /a"}, {line: "ls -R /a"}, {line: "ls -l -o json -R /a"},
	{line: "tree /a"}, {line: "tree -L 1 /a"}, {line: "tree -o json /a"},
	{line: "get /a"}, {line: "get -o raw /a/bytes"}, {line: "get /a/bytes"}, {line: "get -o json /a/bytes"},
	{line: "get -o json /a/null"}, {line: "get -o json /a/empty"}, {line: "get --stale /a"},
	{line: "stat /a"}, {line: "stat -o json /a/p"}, {line: "stat --auth digest:u:secret /a/mine"},
	{line: "set /a/p other"}, {line: "set -o json /a/p third --version 1"}, {line: "set /a/p --null"}, {line: "get -o json /a/p"},
	{line: "getacl /a"}, {line: "getacl -o json /a/acl"}, {line: "getacl /a/mine", code: 6, stderr: true}, {line: "getacl --auth digest:u:secret /a/mine"},
	{line: "setacl /a/acl world:anyone:rwa"}, {line: "setacl -o json /a/acl world:anyone:cdrwa --version 1"}, {line: "getacl /a/acl"},
	{line: "txn", stdin: "create /t 'a b'\ncreate -s /t/n- x\nset /t c 0\ncheck /t 1\ndelete /t/n-0000000000\ncreate /t/n"},
	{line: "txn -o json", stdin: "set /t d\ncreate /t/o data\n{\"op\":\"create\",\"path\":\"/t/p\",\"data\":\"x\",\"mode\":\"persistent\"}"},
	{line: "txn", stdin: "create -c /t/c", code: 2, stderr: true},
	{line: "txn", stdin: "{\"op\":\"create\",\"path\":\"/k\",\"mode\":\"container\"}"}, {line: "rm /k"},
	{line: "txn -- /bin/echo held", stdin: "create -e /t/e\ncheck /t 2"},
	{line: "sync"}, {line: "sync /a"}, {line: "sync -o json /none"},
	{line: "export --auth digest:u:secret /a"}, {line: "export --document /t"},
	{line: "import /i", stdin: importText}, {line: "ls -R /i"}, {line: "import -o json -n /i", stdin: importText},
	{line: "import /i", stdin: `{"path":"/b","data":"changed"}`, code: 3, stderr: true},
	{line: "import --overwrite /i", stdin: `{"path":"/b","data":"changed"}`}, {line: "get /i/b"},
	{line: "rm -n -r /a"}, {line: "rm /t/o"}, {line: "rm --version 0 /t/p"}, {line: "rm -n /t"},
	{line: "rm -r -o json /t"}, {line: "rm -r /a"}, {line: "rm -r /i"},
	{line: "ls /a", code: 4, stderr: true},
	{line: "__complete get /zoo"}, {line: "__complete get /none/"},
}

const importText = `{"path":"/","data":"root"}
{"path":"/b","data":"b","acl":[{"perms":31,"scheme":"world","id":"anyone"},{"perms":1,"scheme":"ip","id":"10.0.0.1"}]}
{"path":"/b/c","base64":"AAE="}
{"path":"/t","mode":"ttl","ttl":"1h0m0s"}
{"path":"/k","mode":"container"}
`

// Goal: every error says the same and exits the same on a ZooKeeper as on Tenure.
// Method: one script of requests that fail on both.
func TestC147ErrorsAreTheSameOnZooKeeper(t *testing.T) {
	tenure := newCLIServer(t)
	zookeeper, _ := zkCLI(t, "")
	long := strings.Repeat("x", 1<<20)
	bothSay(t, tenure, zookeeper, []cliStep{
		{line: "create /full"}, {line: "create /full/child"},
		{line: "create /forbidden --acl digest:nobody:AAAAAAAAAAAAAAAAAAAAAAAAAAA=:r"},
		{line: "ls foo", code: 2, stderr: true}, {line: "setacl / bad", code: 2, stderr: true},
		{line: "get /none", code: 4, stderr: true}, {line: "stat /none", code: 4, stderr: true},
		{line: "ls /none", code: 4, stderr: true}, {line: "tree /none", code: 4, stderr: true},
		{line: "set /none x", code: 4, stderr: true}, {line: "rm /none", code: 4, stderr: true},
		{line: "getacl /none", code: 4, stderr: true}, {line: "setacl /none world:anyone:r", code: 4, stderr: true},
		{line: "rm -r /none", code: 4}, {line: "export /none", code: 4, stderr: true},
		{line: "create /none/x", code: 4, stderr: true}, {line: "create /full", code: 3, stderr: true},
		{line: "create /full/child/", code: 3, stderr: true},
		{line: "rm /full", code: 3, stderr: true}, {line: "rm /full/child --version 7", code: 3, stderr: true},
		{line: "set /full x --version 7", code: 3, stderr: true},
		{line: "setacl /full world:anyone:r --version 7", code: 3, stderr: true},
		{line: "setacl /full nosuch:id:r", code: 1, stderr: true},
		{line: "create --acl auth::r /x", code: 1, stderr: true},
		{line: "get /forbidden", code: 6, stderr: true}, {line: "set /forbidden x", code: 6, stderr: true},
		{line: "ls -R /forbidden", code: 6}, {line: "create /forbidden/x", code: 6, stderr: true},
		{line: "tree /", code: 0}, {line: "setacl /forbidden world:anyone:r", code: 6, stderr: true},
		{line: "export /forbidden", code: 6},
		{line: "get /full --auth nosuch:secret", code: 6},
		{line: "txn", stdin: "create /x\nset /none y\ncheck /full 0", code: 4, stderr: true},
		{line: "txn", stdin: "create /x\ncreate /full", code: 3, stderr: true},
		{line: "txn", stdin: "check /full 7", code: 3, stderr: true},
		{line: "txn", stdin: "create /full", code: 3, stderr: true},
		{line: "txn", stdin: "delete /full", code: 3, stderr: true},
		{line: "txn", stdin: "create -e /e\ncreate /e/x", code: 1, stderr: true},
		{line: "import /none/x", stdin: importText, code: 4, stderr: true},
		{line: "set /full -", stdin: long, code: 1},
		{line: "txn", stdin: "set /full " + long, code: 1},
		{line: "watch /full --count 1 --timeout 300ms", code: 1, stderr: true},
	})
}
