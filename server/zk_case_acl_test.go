package server

import (
	"encoding/base64"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// Goal: no password, no hash of one and no token is logged, whatever is done with it.
// Method: all debug lines of a server through logins that work, fail and don't decode,
// lists with hashes, a cut connection, quotas, and HTTP; then look for every secret.
func TestC061NoSecretIsLogged(t *testing.T) {
	hash := znode.DigestID("root", "sup3r-s3cret")
	s, log := startLogged(t, Config{SuperDigest: Secret(hash), EnforceQuota: true})
	token := adminTokenOf(t, s)
	const alice, bob, wrong = "al1ce-s3cret", "b0b-s3cret", "wr0ng-s3cret"
	for _, door := range everyDoor {
		r := openAs(t, s, door, 0)
		for _, login := range [][2]string{{"digest", "alice:" + alice}, {"digest", "root:sup3r-s3cret"}, {"token", token}} {
			if e := r.auth(login[0], login[1]); e != znode.OK {
				t.Fatal(e)
			}
		}
		path := r.must("/s-", "", sequential)
		if e := r.setACL(path, digest(31, "alice", alice), digest(1, "bob", bob)); e != znode.OK {
			t.Fatal(e)
		}
		r.createACL(path+"/bad", digest(31, "alice", alice), entry("nonsense", bob))
		stranger := openAs(t, s, door, 0)
		stranger.get(path)
		stranger.set(path, "x")
		r.limit(path, "count=0,bytes=0")
		r.must(path+"/n", "", persistent)
		for _, scheme := range []string{"digest", "token", "sasl", "nonsense"} {
			fails := openAs(t, s, door, 0)
			fails.auth(scheme, wrong)
		}
		r.write(append(rawInt(rawInt(rawInt(nil, 77), int32(wire.OpAuth)), 0), wrong...)) // no record
		r.drop()
	}
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.Addr().String()+"/v1/snapshot", nil)
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Authorization", "Bearer "+wrong)
	resp, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	waitFor(t, "the refusal's line", 10*time.Second, func() bool { return log.lines("admin request refused") == 1 })
	for name, secret := range map[string]string{"alice's password": alice, "bob's": bob, "the super password": "sup3r-s3cret", "a wrong one": wrong,
		"its base64": base64.StdEncoding.EncodeToString([]byte(wrong)), "the super hash": hash[5:], "the admin token": token,
		"alice's hash": znode.DigestID("alice", alice)[6:], "bob's hash": znode.DigestID("bob", bob)[4:]} {
		if log.lines(secret) > 0 {
			t.Errorf("%s is in the log", name)
		}
	}
	if log.lines("quota exceeded") == 0 {
		t.Error("the log was not collected")
	}
}

// gozk is go-zookeeper on a connection that can be cut.
type gozk struct {
	*zk.Conn
	nc atomic.Pointer[net.Conn]
}

func dialGozk(t *testing.T, s *Server) *gozk {
	t.Helper()
	g := &gozk{}
	var err error
	g.Conn, _, err = zk.Connect([]string{s.ZKAddr().String()}, 10*time.Second, zk.WithLogger(log.New(io.Discard, "", 0)),
		zk.WithDialer(func(network, addr string, limit time.Duration) (net.Conn, error) {
			nc, err := net.DialTimeout(network, addr, limit)
			if err == nil {
				g.nc.Store(&nc)
			}
			return nc, err
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

// lost are the errors of a request whose connection went: it may be asked again.
var lost = []error{zk.ErrConnectionClosed, zk.ErrSessionExpired, zk.ErrNoServer, net.ErrClosed}

// gets asks n times for path at once, until there was an answer.
func (g *gozk) gets(t *testing.T, what, path string, n int) {
	t.Helper()
	each(n, n, func(int) {
		for deadline := time.Now().Add(20 * time.Second); ; {
			_, _, err := g.Get(path)
			switch {
			case err == nil:
				return
			case !slices.ContainsFunc(lost, func(one error) bool { return errors.Is(err, one) }):
				t.Errorf("%s: %v", what, err)
				return
			case time.Now().After(deadline):
				t.Errorf("%s: only %v for 20 s", what, err)
				return
			}
		}
	})
}

// Goal: go-zookeeper's requests are never judged without its login, which it sends first
// on each new connection: not after a cut, and not in a new session after an expiry.
// Method: a protected znode; the connection cut, then the session ended, each while 50
// requests wait.
func TestC063GoZooKeeperLogsInAgain(t *testing.T) {
	t.Parallel()
	s := startServer(t, Config{})
	g := dialGozk(t, s)
	if err := g.AddAuth("digest", []byte("bob:b")); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Create("/z", nil, 0, zk.AuthACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	g.gets(t, "connected", "/z", 50)
	first := g.SessionID()
	(*g.nc.Load()).Close()
	g.gets(t, "behind a cut", "/z", 50)
	if g.SessionID() != first {
		t.Errorf("session %#x became %#x by a cut", first, g.SessionID())
	}
	if err := s.proposeOwn(s.rep.Leads(), &znode.CloseSession{Session: session.ID(first)}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "a new session", 20*time.Second, func() bool { id := g.SessionID(); return id != 0 && id != first })
	g.gets(t, "in a new session", "/z", 50)
	other := openZK(t, s)
	if _, e := other.get("/z"); e != znode.NoAuth {
		t.Errorf("somebody else: %v", e)
	}
}

// Goal: who is super and who is not, through ZooKeeper's door; a failed login is told and
// ends the connection, and what ends other sessions is unknown there. Method: a znode
// that nobody may touch.
func TestC065LoginThroughZooKeepersDoor(t *testing.T) {
	s, log := startLogged(t, Config{SuperDigest: Secret(znode.DigestID("super", "top"))})
	victim := openZK(t, s)
	if e := victim.createACL("/closed", shut); e != znode.OK {
		t.Fatal(e)
	}
	for _, row := range []struct {
		scheme, data string
		want         znode.Error
	}{
		{"digest", "super:top", znode.OK}, {"token", adminTokenOf(t, s), znode.OK},
		{"digest", "super:wrong", znode.NoAuth}, {"digest", "super", znode.NoAuth}, {"digest", "", znode.NoAuth}, {"ip", "127.0.0.1", znode.NoAuth},
	} {
		r := openZK(t, s)
		if e := r.auth(row.scheme, row.data); e != znode.OK {
			t.Errorf("%s %s: %v", row.scheme, row.data, e)
		}
		if _, e := r.get("/closed"); e != row.want {
			t.Errorf("get as %s %s: %v, want %v", row.scheme, row.data, e, row.want)
		}
		if e := r.setACL("/closed", shut); e != row.want {
			t.Errorf("setACL as %s %s: %v, want %v", row.scheme, row.data, e, row.want)
		}
		r.sendKill(victim.session.Session)
		if reply := r.next(); reply.Err != znode.Unimplemented {
			t.Errorf("kill as %s %s: %v", row.scheme, row.data, reply.Err)
		}
		r.wantClosed("an unknown operation", -1)
	}
	r := openZK(t, s)
	if e := r.auth("token", strings.Repeat("0", 64)); e != znode.AuthFailed {
		t.Errorf("a wrong token: %v", e)
	}
	r.wantClosed("a wrong token", -1)
	if n := log.lines("wrong admin token"); n != 1 {
		t.Errorf("%d lines of the wrong token", n)
	}
	victim.must("/alive", "", ephemeral)
}
