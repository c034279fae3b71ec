package peer

import (
	"crypto/x509"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/replica"
)

// validHello is what member 2 says to member 1.
func validHello() hello {
	return hello{protocol: protocolVersion, cluster: testCluster, from: 2, to: 1, instance: 102, link: 7,
		class: replica.Control, version: "v2", address: "127.0.0.1:2"}
}

// greetRaw sends a greeting and returns the error with which it is refused.
func greetRaw(t *testing.T, address string, greeting []byte) error {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Write(greeting); err != nil {
		t.Fatal(err)
	}
	_, err = readReply(c)
	return err
}

// withoutField is a greeting that lacks the field with the given tag.
func withoutField(greeting []byte, without byte) []byte {
	out := append([]byte(nil), greeting[:magicLen+2]...)
	for body := greeting[magicLen+2:]; len(body) > 0; {
		size := 3 + int(body[1])<<8 + int(body[2])
		if body[0] != without {
			out = append(out, body[:size]...)
		}
		body = body[size:]
	}
	return seal(out)
}

// Goal: a hello that is wrong in one thing is refused, and the refusal names the thing and
// both values. Method: each field wrong in turn, and missing; the unchanged one and one
// with a field of a later version are accepted.
func TestHelloRefusals(t *testing.T) {
	t.Parallel()
	m := newMember(t, 1, func(c *Config) {
		c.Known = func(member, instance uint64) error {
			if member != 2 {
				t.Errorf("asked about member %d, which is a stranger", member)
			}
			if instance != 102 {
				return errors.New("member 2 was wiped: its instance is not the one that is known")
			}
			return nil
		}
	})
	m.SetMembers(map[uint64]string{2: "127.0.0.1:1"})
	m.Serve(&m.recorder)
	changed := func(change func(*hello)) []byte {
		h := validHello()
		change(&h)
		return h.encode()
	}
	plain := validHello().encode()
	for name, c := range map[string]struct {
		greeting []byte
		want     string // "": accepted
	}{
		"as it is":       {plain, ""},
		"a field more":   {seal(appendText(validHello().encode(), 200, "later")), ""},
		"cluster":        {changed(func(h *hello) { h.cluster = 0x1f }), "cluster 000000000000001f is not this member's cluster 000000000000002a"},
		"to":             {changed(func(h *hello) { h.to = 3 }), "you call member 3, this is member 1"},
		"own id":         {changed(func(h *hello) { h.from = 1 }), "member 1 is this member's own id"},
		"stranger":       {changed(func(h *hello) { h.from = 3 }), "member 3 is not a member"},
		"instance":       {changed(func(h *hello) { h.instance = 9 }), "member 2 was wiped"},
		"protocol":       {changed(func(h *hello) { h.protocol = 7 }), "protocol 7: this member speaks 1"},
		"class":          {changed(func(h *hello) { h.class = 8 }), "class 9 is not one of"},
		"no cluster":     {withoutField(plain, tagCluster), `lacks its field "cluster"`},
		"no from":        {withoutField(plain, tagFrom), `lacks its field "from"`},
		"no to":          {withoutField(plain, tagTo), `lacks its field "to"`},
		"no instance":    {withoutField(plain, tagInstance), `lacks its field "instance"`},
		"no link":        {withoutField(plain, tagLink), `lacks its field "link"`},
		"no features":    {withoutField(plain, tagFeatures), `lacks its field "features"`},
		"no class":       {withoutField(plain, tagClass), `lacks its field "class"`},
		"no version":     {withoutField(plain, tagVersion), `lacks its field "version"`},
		"no address":     {withoutField(plain, tagAddress), `lacks its field "address"`},
		"no protocol":    {withoutField(plain, tagProtocol), `lacks its field "protocol"`},
		"cluster 0":      {changed(func(h *hello) { h.cluster = 0 }), `field "cluster" is 0`},
		"instance 0":     {changed(func(h *hello) { h.instance = 0 }), `field "instance" is 0`},
		"bad address":    {changed(func(h *hello) { h.address = "here" }), "here"},
		"long version":   {changed(func(h *hello) { h.version = strings.Repeat("v", 300) }), `field "version" has 300 bytes, at most 255`},
		"field twice":    {seal(appendNumber(validHello().encode(), tagTo, 1)), "is there twice"},
		"field too long": {seal(append(validHello().encode(), 99, 1, 0)), "field 99 of a greeting has 256 bytes, of which 0 are there"},
		"short number":   {seal(append(withoutField(plain, tagTo), tagTo, 0, 1, 1)), `field "to" has 1 bytes, not 8`},
		"crumbs":         {seal(append(validHello().encode(), 99)), "1 bytes behind the last field"},
		"too long":       {seal(append(validHello().encode(), make([]byte, 3000)...)), "at most 2048"},
		"http":           {[]byte("GET / HTTP/1.1\r\n\r\n"), "does not speak the protocol of members"},
		"tls":            {[]byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"), "speaks TLS, for which this member is not configured"},
	} {
		err := greetRaw(t, m.address, c.greeting)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), "it refuses this member: ") || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// Goal: whoever was judged by an address that is not the member's any more is not served. Method:
// the member moves in the middle of the judgement.
func TestMemberMovesWhileItIsJudged(t *testing.T) {
	t.Parallel()
	var m *member
	m = newMember(t, 1, func(c *Config) {
		c.Known = func(uint64, uint64) error { m.SetMembers(map[uint64]string{2: "127.0.0.1:3"}); return nil }
	})
	m.SetMembers(map[uint64]string{2: "127.0.0.1:2"})
	m.Serve(&m.recorder)
	if err := greetRaw(t, m.address, validHello().encode()); err == nil {
		t.Error("it was accepted")
	}
}

// Goal: whoever refuses, both ends know and log why, once, however often it is tried.
// Method: pairs that must not meet; what each says of the other.
func TestBothEndsSayWhy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change1, change2 func(*Config)
		last1, last2     string // of what each says about its own attempts
	}{
		"cluster": {nil, func(c *Config) { c.Cluster = 0x1f },
			"it refuses this member: cluster 000000000000002a is not this member's cluster 000000000000001f",
			"it refuses this member: cluster 000000000000001f is not this member's cluster 000000000000002a"},
		"instance": {func(c *Config) { c.Known = wiped }, nil,
			"this member refuses it: member 2 was wiped", "it refuses this member: member 2 was wiped"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expectStrangers(t, c.change1, c.change2, c.last1, c.last2)
		})
	}
}

func wiped(member, instance uint64) error {
	if member == 2 && instance == 102 {
		return errors.New("member 2 was wiped")
	}
	return nil
}

// expectStrangers starts members 1 and 2, which must not get connected, and compares what
// they say: as the last error of their attempts, and once each in both logs.
func expectStrangers(t *testing.T, change1, change2 func(*Config), last1, last2 string) {
	t.Helper()
	a, b := newMember(t, 1, change1), newMember(t, 2, change2)
	serve(a, b)
	for m, want := range map[*member]string{a: last1, b: last2} {
		other := 3 - m.id
		waitFor(t, want, func() bool { return strings.Contains(m.Stats()[other].LastError, want) })
	}
	// Each refuses and is refused several times by now.
	waitFor(t, "logs", func() bool {
		return strings.Contains(a.logged.String(), "connection refused") && strings.Contains(b.logged.String(), "connection refused")
	})
	<-time.After(200 * time.Millisecond)
	for _, m := range []*member{a, b} {
		if s := m.Stats()[3-m.id]; s.Connected || s.SentFrames > 0 {
			t.Errorf("member %d: %+v", m.id, s)
		}
		if events, _ := m.told(); events != "[]" {
			t.Errorf("member %d was told %s", m.id, events)
		}
		if n := strings.Count(m.logged.String(), "\n"); n > 4 {
			t.Errorf("member %d has logged %d lines:\n%s", m.id, n, m.logged.String())
		}
	}
}

// Goal: only members with a certificate of the authority, for their own host, are talked
// to, whoever dials; TLS and plain do not meet; each says what is wrong. Method: members 1
// and 2 on 127.0.0.1, where 2 is wrong in one thing.
func TestTLSRefusals(t *testing.T) {
	t.Parallel()
	ca, otherCA := newAuthority(t), newAuthority(t)
	good := ca.member(t, hostOf("127.0.0.1"))
	mixed := otherCA.member(t, hostOf("127.0.0.1")) // signed by the other, but it trusts ours
	mixed.CAFile = good.CAFile
	for name, c := range map[string]struct {
		files2       *TLS
		last1, last2 string
	}{
		"wrong authority": {mixed, "certificate signed by unknown authority", "does not accept this member's certificate"},
		"wrong host": {ca.member(t, hostOf("elsewhere.test")), "doesn't contain any IP SANs",
			"it refuses this member: the certificate is not one of member 2, which is at 127.0.0.1:"},
		"claimed host": {ca.member(t, hostOf("elsewhere.test")), "doesn't contain any IP SANs",
			"it refuses this member: the certificate is not one of member 2, which is at 127.0.0.1:"},
		"wrong address":   {ca.member(t, hostOf("127.0.0.2")), "127.0.0.2, not 127.0.0.1", "the certificate is not one of member 2"},
		"plain to TLS":    {nil, "the other end does not speak TLS", "it refuses this member: the other end does not speak TLS"},
		"other authority": {otherCA.member(t, hostOf("127.0.0.1")), "certificate signed by unknown authority", "certificate signed by unknown authority"},
		"expired": {ca.member(t, func(c *x509.Certificate) {
			hostOf("127.0.0.1")(c)
			c.NotAfter = time.Now().Add(-time.Minute)
		}), "expired", "does not accept this member's certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expectStrangers(t, func(c *Config) { c.TLS = good }, func(cfg *Config) {
				if cfg.TLS = c.files2; name == "claimed host" {
					cfg.Advertise = "elsewhere.test:1"
				}
			}, c.last1, c.last2)
		})
	}
}

// Goal: files that could never work are refused at the start, with the file and the rule.
// Method: a certificate without a host, one for either end only, a missing and an empty file.
func TestTLSFilesRefused(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	good := ca.member(t, hostOf("127.0.0.1"))
	empty := *good
	empty.CAFile = good.KeyFile
	missing := *good
	missing.CAFile = good.CAFile + ".missing"
	for want, files := range map[string]*TLS{
		"names no host":                ca.member(t, func(*x509.Certificate) {}),
		"must have server and client":  ca.member(t, oneEnd(x509.ExtKeyUsageServerAuth)),
		"extended key usage must have": ca.member(t, oneEnd(x509.ExtKeyUsageClientAuth)),
		"has no PEM certificate":       &empty,
		"no such file":                 &missing,
		"private key does not match":   {CertFile: good.CertFile, KeyFile: ca.member(t, hostOf("x")).KeyFile, CAFile: good.CAFile},
		"failed to find any PEM data":  {CertFile: os.DevNull, KeyFile: good.KeyFile, CAFile: good.CAFile},
	} {
		ln := listen(t, "127.0.0.1:0")
		_, err := Open(Config{Cluster: 1, ID: 1, Instance: 1, Advertise: "127.0.0.1:1", Listener: ln, TLS: files})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		_ = ln.Close()
	}
}

func oneEnd(use x509.ExtKeyUsage) func(*x509.Certificate) {
	return func(c *x509.Certificate) {
		hostOf("127.0.0.1")(c)
		c.ExtKeyUsage = []x509.ExtKeyUsage{use}
	}
}

// Goal: replaced files are used for the next connection, without a restart. Method: give
// both members certificates of a new authority; the link that is broken then is made
// again, and a third that has the old one is refused.
func TestTLSFilesReplaced(t *testing.T) {
	t.Parallel()
	oldCA, newCA := newAuthority(t), newAuthority(t)
	files := oldCA.member(t, hostOf("127.0.0.1"))
	late := oldCA.member(t, hostOf("127.0.0.1"))
	a, b := pair(t, func(c *Config) { c.TLS = files })
	newCA.issue(t, files, hostOf("127.0.0.1"))
	a.SetMembers(map[uint64]string{})
	waitFor(t, "cut", func() bool { s, _ := b.told(); return strings.Contains(s, "-1") })
	c := newMember(t, 3, func(c *Config) { c.TLS = late })
	c.SetMembers(map[uint64]string{1: a.address})
	c.Serve(&c.recorder)
	a.SetMembers(map[uint64]string{2: b.address, 3: c.address})
	waitWhole(t, a, b)
	waitFor(t, "the old authority is refused", func() bool {
		return strings.Contains(c.Stats()[1].LastError, "certificate signed by unknown authority")
	})
}
