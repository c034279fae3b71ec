package tests

import (
	"fmt"
	"io"
	"log"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tenure-dev/tenure/recipes/recipestest"
	"github.com/tenure-dev/tenure/znode"
)

// zkContainer is ZooKeeper's flag of containers, for which go-zookeeper has no name.
const zkContainer = 4

// told is what one server answered to a script, step by step.
type told struct {
	t       *testing.T
	address string
	c       *zk.Conn // of nobody in particular
	names   []string
	answers map[string]string
}

// say notes the answer to a step.
func (s *told) say(step string, err error, more ...any) {
	answer := "ok"
	if err != nil {
		answer = err.Error()
	} else if len(more) > 0 {
		answer = fmt.Sprintf("%v", more)
	}
	s.names = append(s.names, step)
	s.answers[step] = answer
}

// connect opens a session and logs in, "" for nobody.
func (s *told) connect(credentials string) *zk.Conn {
	s.t.Helper()
	c, _, err := zk.Connect([]string{s.address}, 10*time.Second, zk.WithLogger(log.New(io.Discard, "", 0)))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(c.Close)
	if credentials != "" {
		if err := c.AddAuth("digest", []byte(credentials)); err != nil {
			s.t.Fatal(err)
		}
	}
	return c
}

// Goal: access lists, permissions and quotas are as in ZooKeeper, but for what is known to
// differ and why. Method: the same steps on both; what is in deliberate must differ.
func TestAccessAndQuotasAsInZooKeeper(t *testing.T) {
	t.Parallel()
	deliberate := map[string]string{
		// ZooKeeper takes IPv6 addresses since 3.10.
		"list ip ::1": "[denied]", "list ip 2001:db8::/32": "[denied]",
		// It has a scheme only if its provider is configured; lists of an ensemble that
		// has one must be importable here.
		"list sasl user/host@REALM": "[denied]",
		// Its multi is judged by the state before it, and so overshoots.
		"multi beyond the count": "unknown error: -125", "multi swaps": "ok",
		// It refuses also what makes less of a use that is above its limits.
		"shrink above the limit": "ok",
	}
	// Before 3.9.2 it asked nobody who wants to know whether a znode exists.
	for _, dir := range []string{"1-true", "2-true", "2-false", "4-true", "4-false", "8-true", "8-false", "16-true", "16-false"} {
		deliberate["exists with /p"+dir] = zk.ErrNoAuth.Error()
	}
	z := recipestest.StartZooKeeper(t, recipestest.ZooKeeperOptions{Config: "enforceQuota=true\n",
		JVM: []string{"-Dzookeeper.DigestAuthenticationProvider.superDigest=" + znode.DigestID("super", "top")}})
	d := startDaemon(t, t.TempDir(), "--enforce-quota", "--super-digest", znode.DigestID("super", "top"))
	var both [2]*told
	for i, address := range []string{d.zkAddress, z.Addrs()[0]} {
		s := &told{t: t, address: address, answers: map[string]string{}}
		s.c = s.connect("")
		s.lists()
		s.permissions()
		s.softQuota()
		s.hardQuota()
		both[i] = s
	}
	for _, step := range both[0].names {
		tenure, zookeeper := both[0].answers[step], both[1].answers[step]
		if want, ok := deliberate[step]; ok {
			if tenure != want || zookeeper == want {
				t.Errorf("%s: Tenure %q, ZooKeeper %q; want %q of Tenure alone", step, tenure, zookeeper, want)
			}
		} else if tenure != zookeeper {
			t.Errorf("%s: Tenure %q, ZooKeeper %q", step, tenure, zookeeper)
		}
		delete(deliberate, step)
	}
	if len(deliberate) > 0 || len(both[0].names) < 150 {
		t.Errorf("%d steps, and none for %v", len(both[0].names), deliberate)
	}
}

// lists are what every kind of list becomes, and whether it lets its creator in.
func (s *told) lists() {
	c, super := s.connect("bob:b"), s.connect("super:top")
	for _, id := range []struct{ scheme, id string }{
		{"world", "anyone"}, {"world", "anybody"}, {"world", ""},
		{"digest", "a:b"}, {"digest", ":b"}, {"digest", "a:"}, {"digest", "a:b:c"}, {"digest", "a:b:"}, {"digest", ""}, {"digest", ":"},
		{"digest", znode.DigestID("bob", "b")}, {"digest", "bob:b"},
		{"ip", "127.0.0.1"}, {"ip", "127.0.0.1/0"}, {"ip", "127.0.0.1/32"}, {"ip", "127.9.9.9/8"}, {"ip", "127.0.0.2/31"}, {"ip", "10.0.0.0/8"},
		{"ip", "1.2.3"}, {"ip", "1.2.3.4/33"}, {"ip", "1.2.3.4/-1"}, {"ip", "1.2.3.4/x"}, {"ip", "host"}, {"ip", ""}, {"ip", "::1"}, {"ip", "2001:db8::/32"},
		{"sasl", "user/host@REALM"}, {"super", ""}, {"auth", ""}, {"auth", "x"}, {"nonsense", "x"}, {"", ""},
	} {
		_, err := c.Create("/x", nil, 0, []zk.ACL{{Perms: zk.PermAll, Scheme: id.scheme, ID: id.id}})
		answer := "allowed"
		if err == nil {
			if _, _, denied := c.Get("/x"); denied != nil {
				answer = "denied"
			}
			if err := super.Delete("/x", -1); err != nil {
				s.t.Fatal(err)
			}
		}
		s.say("list "+id.scheme+" "+id.id, err, answer)
	}
	open, auth := anybody[0], zk.AuthACL(zk.PermRead | zk.PermAdmin)[0]
	bob := zk.DigestACL(zk.PermAll, "bob", "b")[0]
	odd := zk.ACL{Perms: 95, Scheme: "world", ID: "anyone"}
	for i, list := range [][]zk.ACL{{}, {open, open, open}, {bob, open, bob}, {open, auth}, {auth, bob}, {odd, open}, {open, {Perms: 31, Scheme: "super"}}} {
		path := fmt.Sprintf("/l%d", i)
		_, err := c.Create(path, nil, 0, list)
		got, _, _ := super.GetACL(path)
		s.say(fmt.Sprintf("create with list %d", i), err, got)
		_, err = c.Create("/m", nil, 0, anybody)
		if err != nil {
			s.t.Fatal(err)
		}
		_, err = c.SetACL("/m", list, -1)
		got, _, _ = super.GetACL("/m")
		s.say(fmt.Sprintf("setACL with list %d", i), err, got)
		if err := super.Delete("/m", -1); err != nil {
			s.t.Fatal(err)
		}
	}
	masked, _, err := s.c.GetACL("/l2")
	s.say("hashes for a reader without ADMIN", err, masked)
	_, err = s.c.Create("/nobody", nil, 0, []zk.ACL{auth})
	s.say("auth of nobody", err)
}

// permissions are which operations each permission allows, on the parent and on the znode.
func (s *told) permissions() {
	one, super := s.connect("one:1"), s.connect("super:top")
	for bit := int32(1); bit <= zk.PermAdmin; bit *= 2 {
		for _, onParent := range []bool{true, false} {
			dir := fmt.Sprintf("/p%d-%v", bit, onParent)
			has, none := zk.DigestACL(bit, "one", "1"), zk.DigestACL(zk.PermAll, "two", "2")
			parent, node := has, none
			if !onParent {
				parent, node = none, has
			}
			_, e1 := super.Create(dir, nil, 0, parent)
			_, e2 := super.Create(dir+"/n", nil, 0, node)
			if e1 != nil || e2 != nil {
				s.t.Fatal(e1, e2)
			}
			try := func(op string, err error) { s.say(op+" with "+dir, err) }
			_, _, err := one.Get(dir + "/n")
			try("get", err)
			_, _, err = one.Exists(dir + "/n")
			try("exists", err)
			_, _, err = one.Children(dir + "/n")
			try("children", err)
			_, _, err = one.GetACL(dir + "/n")
			try("getACL", err)
			_, err = one.Multi(&zk.CheckVersionRequest{Path: dir + "/n", Version: -1})
			try("check", err)
			_, err = one.Set(dir+"/n", nil, -1)
			try("set", err)
			_, err = one.Create(dir+"/new", nil, 0, none)
			try("create", err)
			_, err = one.CreateContainer(dir+"/container", nil, zkContainer, none)
			try("createContainer", err)
			try("delete", one.Delete(dir+"/n", -1))
			if super.Delete(dir+"/n", -1) == nil {
				_, err := super.Create(dir+"/n", nil, 0, node)
				if err != nil {
					s.t.Fatal(err)
				}
				_, err = one.SetACL(dir+"/n", none, -1)
				try("setACL", err)
			}
		}
	}
}

// limit is what zkCli's setquota does.
func (s *told) limit(path, limits string) {
	at := "/zookeeper/quota" + path
	for _, n := range [][2]string{{at, ""}, {at + "/zookeeper_limits", limits}, {at + "/zookeeper_stats", "count=0,bytes=0"}} {
		err := s.create(n[0], n[1])
		if err == zk.ErrNodeExists && n[1] == limits {
			err = s.set(n[0], limits)
		}
		if err != nil && err != zk.ErrNodeExists {
			s.t.Fatal(n[0], err)
		}
	}
}

var anybody = zk.WorldACL(zk.PermAll)

func (s *told) create(path, data string) error {
	_, err := s.c.Create(path, []byte(data), 0, anybody)
	return err
}

func (s *told) set(path, data string) error {
	_, err := s.c.Set(path, []byte(data), -1)
	return err
}

// usage notes what a quota's usage znode says.
func (s *told) usage(step, path string) {
	data, stat, err := s.c.Get("/zookeeper/quota" + path + "/zookeeper_stats")
	if err != nil {
		s.t.Fatal(step, err)
	}
	s.say("usage: "+step, nil, string(data), stat.Version, stat.DataLength, stat.Mzxid == stat.Czxid)
}

// softQuota is the usage below a quota that refuses nothing.
func (s *told) softQuota() {
	short := s.connect("")
	s.say("create", s.create("/q", "12345"))
	s.say("create child", s.create("/q/a", "123"))
	s.limit("/q", "count=2,bytes=3")
	s.usage("limits over data", "/q")
	s.say("soft", s.create("/q/b", "1"))
	s.say("set", s.set("/q", "1"))
	s.usage("set", "/q")
	_, err := short.Create("/q/e", []byte("22"), zk.FlagEphemeral, anybody)
	s.say("ephemeral", err)
	s.usage("ephemeral", "/q")
	short.Close()
	s.usage("session's end", "/q")
	_, err = s.c.Multi(&zk.CreateRequest{Path: "/q/m", Data: []byte("1234"), Acl: anybody}, &zk.SetDataRequest{Path: "/q/m", Version: -1},
		&zk.DeleteRequest{Path: "/q/b", Version: -1})
	s.say("multi", err)
	s.usage("multi", "/q")
}

// hardQuota is what limits refuse, behind softQuota.
func (s *told) hardQuota() {
	s.limit("/q", "count=-1,bytes=-1=;byteHardLimit=6;countHardLimit=4")
	s.say("up to the count", s.create("/q/c", ""))
	s.say("beyond the count", s.create("/q/d", ""))
	s.say("beyond the bytes", s.set("/q/c", "123"))
	s.say("up to the bytes", s.set("/q/c", "12"))
	_, err := s.c.Set("/q/c", []byte("123"), 77)
	s.say("a bad version beyond", err)
	_, err = s.c.Multi(&zk.DeleteRequest{Path: "/q/m", Version: -1}, &zk.CreateRequest{Path: "/q/n", Acl: anybody})
	s.say("multi swaps", err)
	if err := s.create("/q/n", ""); err != nil && err != zk.ErrNodeExists { // where it was refused
		if err := s.c.Delete("/q/m", -1); err != nil {
			s.t.Fatal(err)
		}
		if err := s.create("/q/n", ""); err != nil {
			s.t.Fatal(err)
		}
	}
	s.usage("swapped", "/q")
	if err := s.c.Delete("/q/n", -1); err != nil {
		s.t.Fatal(err)
	}
	_, err = s.c.Multi(&zk.CreateRequest{Path: "/q/x", Acl: anybody}, &zk.CreateRequest{Path: "/q/y", Acl: anybody})
	s.say("multi beyond the count", err)
	for _, path := range []string{"/q/x", "/q/y"} {
		if err := s.c.Delete(path, -1); err != nil && err != zk.ErrNoNode {
			s.t.Fatal(err)
		}
	}
	s.limit("/q", "count=-1,bytes=-1=;byteHardLimit=1")
	s.say("shrink above the limit", s.set("/q/a", "12"))
	s.say("grow above the limit", s.set("/q/a", "1234"))
	s.say("delete above the limit", s.c.Delete("/q/c", -1))
	s.limit("/q", "count=9,bytes=99")
	s.say("without hard limits", s.set("/q/a", "1"))
	s.say("no quota", s.create("/qq", "1234567"))
	s.limit("/q/a", "count=9,bytes=9=;countHardLimit=2")
	s.say("below the nearer limit", s.create("/q/a/x", "1"))
	s.say("beyond the nearer limit", s.create("/q/a/y", ""))
	s.usage("nearer", "/q/a")
	for _, name := range []string{"/zookeeper_limits", "/zookeeper_stats", ""} {
		s.say("delquota"+name, s.c.Delete("/zookeeper/quota/q/a"+name, -1))
	}
	s.say("behind delquota", s.create("/q/a/y", "123"))
}
