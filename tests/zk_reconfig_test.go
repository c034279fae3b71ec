package tests

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tenure-dev/tenure/recipes/recipestest"
	"github.com/tenure-dev/tenure/znode"
)

// configForm is /zookeeper/config as clients parse it.
var configForm = regexp.MustCompile(`^(server\.\d+=127\.0\.0\.1:\d+:\d+:(participant|observer)(;127\.0\.0\.1:\d+)?\n)+version=[0-9a-f]+$`)

// reconfigSession is a client that may reconfigure.
func reconfigSession(t *testing.T, address string) *zk.Conn {
	t.Helper()
	c, _, err := zk.Connect([]string{address}, 20*time.Second, zk.WithLogInfo(false), zk.WithLogger(discardLog{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if err := c.AddAuth("digest", []byte("super:top")); err != nil {
		t.Fatal(err)
	}
	return c
}

// configText waits until /zookeeper/config says something that ok is true of.
func configText(t *testing.T, c *zk.Conn, what string, ok func(string) bool) string {
	t.Helper()
	text := ""
	for tick, end := time.NewTicker(20*time.Millisecond), time.Now().Add(20*time.Second); time.Now().Before(end); <-tick.C {
		data, _, err := c.Get("/zookeeper/config")
		if text = string(data); err == nil && ok(text) {
			return text
		}
	}
	t.Errorf("%s: /zookeeper/config has\n%s", what, text)
	return text
}

// Goal: /zookeeper/config and reconfig are ZooKeeper's: the same form of text, the same
// errors, the same servers left. Method: three servers of each, go-zookeeper, the same requests.
func TestReconfigAsZooKeeper(t *testing.T) {
	t.Parallel()
	super := znode.DigestID("super", "top")
	z := recipestest.StartZooKeeper(t, recipestest.ZooKeeperOptions{Servers: 3, Config: "reconfigEnabled=true\n",
		JVM: []string{"-Dzookeeper.DigestAuthenticationProvider.superDigest=" + super}})
	e := startEnsemble(t, ensembleOptions{args: []string{"--reconfig-enabled", "--super-digest", super}})
	clients := map[string]*zk.Conn{"ZooKeeper": reconfigSession(t, z.Addrs()[0]), "Tenure": reconfigSession(t, e.member(1).zk)}
	for name, c := range clients {
		three := configText(t, c, name, func(text string) bool { return configForm.MatchString(text) && strings.Count(text, "server.") == 3 })
		if name == "Tenure" && !strings.Contains(three, ":participant;"+e.member(3).zk+"\n") { // ZooKeeper's settings here keep it apart
			configText(t, c, "where clients connect", func(text string) bool { return strings.Contains(text, ":participant;"+e.member(3).zk+"\n") })
		}
		_, _, changed, err := c.GetW("/zookeeper/config")
		if err != nil {
			t.Fatal(err)
		}
		_, errVersion := c.IncrementalReconfig(nil, []string{"3"}, 7)
		_, errNonsense := c.IncrementalReconfig([]string{"nonsense"}, nil, -1)
		_, errNobody := c.IncrementalReconfig(nil, []string{"1", "2", "3"}, -1)
		stranger, _, err := zk.Connect([]string{c.Server()}, 20*time.Second, zk.WithLogInfo(false), zk.WithLogger(discardLog{}))
		if err != nil {
			t.Fatal(err)
		}
		_, errAuth := stranger.IncrementalReconfig(nil, []string{"3"}, -1)
		stranger.Close()
		got := []error{errVersion, errNonsense, errNobody, errAuth}
		if want := []error{zk.ErrBadVersion, zk.ErrBadArguments, zk.ErrBadArguments, zk.ErrNoAuth}; !slices.EqualFunc(got, want, errors.Is) {
			t.Errorf("%s: errors %v, want %v", name, got, want)
		}
		stat, err := c.IncrementalReconfig(nil, []string{"3"}, -1)
		cut := name == "ZooKeeper" && errors.Is(err, zk.ErrConnectionClosed) // it may lose its leader over it
		if !cut && (err != nil || stat.Mzxid == 0) {
			t.Errorf("%s: leaving: %+v, %v", name, stat, err)
		}
		two := configText(t, c, name, func(text string) bool { return configForm.MatchString(text) && strings.Count(text, "server.") == 2 })
		if strings.Contains(two, "server.3=") || two[strings.Index(two, "version="):] == three[strings.Index(three, "version="):] {
			t.Errorf("%s: from\n%s\nto\n%s", name, three, two)
		}
		select {
		case event := <-changed:
			if event.Type != zk.EventNodeDataChanged {
				t.Errorf("%s: event %+v", name, event)
			}
		case <-time.After(20 * time.Second):
			t.Errorf("%s: no event", name)
		}
	}
}
