package peer

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/replica"
)

// Goal: a frame that breaks a rule ends its connection, with a logged reason, and costs no
// memory. Method: as a member that has done its greetings: empty, too large, the largest
// length there is, an unknown mark, half a frame.
func TestBadFramesEndTheConnection(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sent []byte
		want string
	}{
		"empty":        {[]byte{0, 0, 0, 0}, "it sent an empty frame"},
		"too large":    {binary.BigEndian.AppendUint32(nil, 16<<20+1), "it announced a frame of 16777217 bytes, at most 16777216"},
		"largest":      {[]byte{0x7f, 0xff, 0xff, 0xff}, "it announced a frame of 2147483647 bytes"},
		"unknown mark": {[]byte{0x80, 0, 0, 9}, "it announced a frame of 2147483657 bytes"},
		"half":         {[]byte{0, 0, 0, 9, 1, 2}, "after 2 of 9 bytes of a frame: unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMember(t, 1, nil)
			m.SetMembers(map[uint64]string{2: "127.0.0.1:1"})
			m.Serve(&m.recorder)
			conn := greeted(t, m.address, validHello())
			if _, err := conn.Write(append(append([]byte{0, 0, 0, 2}, "ok"...), c.sent...)); err != nil {
				t.Fatal(err)
			}
			if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if got := readAll(conn); got != "" {
				t.Errorf("it answered %q", got)
			}
			waitFor(t, "the reason", func() bool { return strings.Contains(m.logged.String(), c.want) })
			if got := m.got(2, replica.Control); len(got) != 1 || string(got[0]) != "ok" {
				t.Errorf("frames before: %q", got)
			}
		})
	}
}

// Goal: a frame costs the memory of what has come of it, not of what was announced; a large one
// arrives as it was sent. Method: all of one of several chunks, and a little of one of 64 MiB.
func TestFrameMemoryFollowsWhatComes(t *testing.T) {
	sent := make([]byte, 5*chunkSize+chunkSize/2)
	for i := range sent {
		sent[i] = byte(i ^ i>>8 ^ i>>16)
	}
	read := func(announced int, sent []byte) ([]byte, error) {
		in := bytes.NewReader(append(binary.BigEndian.AppendUint32(nil, uint32(announced)), sent...))
		r := &frameReader{in: bufio.NewReader(in), max: 80 << 20}
		frame, _, err := r.next()
		return frame, err
	}
	if got, err := read(len(sent), sent); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d bytes came of %d, or others: %v", len(got), len(sent), err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := read(64<<20, sent[:1000])
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 4<<20 {
		t.Errorf("1000 bytes of a frame took %d KiB", grown>>10)
	}
	if want := "after 1000 of 67108864 bytes of a frame"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}

// greeted is a connection of member 2 to member 1, by hand.
func greeted(t *testing.T, address string, h hello) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	greet(t, conn, h)
	return conn
}

// greet does the greetings of member 2.
func greet(t *testing.T, conn net.Conn, h hello) {
	t.Helper()
	if _, err := conn.Write(h.encode()); err != nil {
		t.Fatal(err)
	}
	if _, err := readReply(conn); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(reply{instance: 102, version: "v2"}.encode()); err != nil {
		t.Fatal(err)
	}
}

// Goal: strangers that connect and say nothing are held in bounded number, and members
// still get in. Method: 1000 silent connections from one address; the members are on
// another.
func TestFloodOfHandshakes(t *testing.T) {
	base := runtime.NumGoroutine()
	change := func(ip string) func(*Config) {
		return func(c *Config) {
			c.HandshakesMax, c.HandshakeTimeout = 40, time.Minute
			dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
			c.Dial = dialer.DialContext
		}
	}
	a, b := newMember(t, 1, change("127.0.0.2")), newMember(t, 2, change("127.0.0.3"))
	a.SetMembers(map[uint64]string{2: b.address})
	b.SetMembers(map[uint64]string{1: a.address})
	a.Serve(&a.recorder)
	flood := make([]net.Conn, 0, 1000)
	defer func() {
		for _, c := range flood {
			_ = c.Close()
		}
	}()
	for range cap(flood) {
		c, err := net.Dial("tcp", a.address)
		if err != nil {
			t.Fatal(err)
		}
		flood = append(flood, c)
	}
	waitFor(t, "the flood is in", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.mu.perIP["127.0.0.1"] == 10
	})
	if n := runtime.NumGoroutine() - base; n > 40 {
		t.Errorf("%d goroutines for 10 handshakes", n)
	}
	b.Serve(&b.recorder)
	waitWhole(t, a, b)
	if n := strings.Count(a.logged.String(), "connection closed unheard"); n != 1 {
		t.Errorf("%d lines about it in the log, want 1", n)
	}
}

// Goal: the other end of a dialed connection gets no further than the rules allow either.
// Method: a listener that answers something else; what the member says about it.
func TestDialingAStranger(t *testing.T) {
	t.Parallel()
	accept := reply{instance: 102, version: "v2"}.encode()
	for name, c := range map[string]struct{ answer, want string }{
		"http":            {"HTTP/1.1 400 Bad Request\r\n\r\n", `it begins with "HTTP/1.1"`},
		"tls alert":       {"\x15\x03\x01\x00\x02\x02\x0a", "the other end speaks TLS"},
		"silence and end": {"", "after 0 bytes of a greeting: EOF"},
		"half":            {string(accept[:20]), "of a greeting's fields: unexpected EOF"},
		"no instance":     {string(withoutField(accept, tagInstance)), `lacks its field "instance"`},
		"frames instead":  {string(accept) + "\x00\x00\x00\x01x", "it announced a frame of 1 bytes"},
		"unprintable":     {string(reply{refusal: "no\x1b[2J\n"}.encode()), "it refuses this member: no?[2J?"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ln := listen(t, "127.0.0.1:0")
			defer func() { _ = ln.Close() }()
			go func() {
				for {
					conn, err := ln.Accept()
					if err != nil {
						return
					}
					_, _ = readHello(conn)
					_, _ = io.WriteString(conn, c.answer)
					_ = conn.(*net.TCPConn).CloseWrite()
					go func() { _ = readAll(conn); _ = conn.Close() }()
				}
			}()
			m := newMember(t, 1, nil)
			m.SetMembers(map[uint64]string{2: ln.Addr().String()})
			m.Serve(&m.recorder)
			waitFor(t, c.want, func() bool { return strings.Contains(m.Stats()[2].LastError, c.want) })
		})
	}
}

// Goal: what can be known to be wrong is said when a transport is made. Method: each
// field of the configuration wrong in turn.
func TestConfigRefused(t *testing.T) {
	t.Parallel()
	ln := listen(t, "127.0.0.1:0")
	defer func() { _ = ln.Close() }()
	for want, change := range map[string]func(*Config){
		"cluster id is 0":              func(c *Config) { c.Cluster = 0 },
		"member id is 0":               func(c *Config) { c.ID = 0 },
		"instance is 0":                func(c *Config) { c.Instance = 0 },
		"there is no listener":         func(c *Config) { c.Listener = nil },
		"the version has 256 bytes":    func(c *Config) { c.Version = strings.Repeat("v", 256) },
		"is larger than 1073741823":    func(c *Config) { c.BulkFrameMax, c.BulkQueueMax = 1<<30, 1<<31 },
		"fit in a queue of 1048575":    func(c *Config) { c.ControlQueueMax = 1<<20 - 1 },
		"pings every 3s":               func(c *Config) { c.PingInterval = 3 * time.Second },
		`":0" is not a host and a por`: func(c *Config) { c.Advertise = ":0" },
		"missing port in address":      func(c *Config) { c.Advertise = "host" },
	} {
		c := Config{Cluster: 1, ID: 1, Instance: 1, Advertise: "127.0.0.1:1", Listener: ln}
		change(&c)
		if _, err := Open(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// FuzzHello: no greeting makes the decoder fail or take more than its bound, and what is
// accepted is what was said.
func FuzzHello(f *testing.F) {
	f.Add(validHello().encode())
	f.Add(withoutField(validHello().encode(), tagTo))
	f.Add(seal(appendText(validHello().encode(), 200, "later")))
	f.Add(reply{refusal: "no"}.encode())
	f.Add([]byte("\x16\x03\x01"))
	f.Fuzz(func(t *testing.T, b []byte) {
		in := bytes.NewReader(b)
		h, err := readHello(in)
		if used := len(b) - in.Len(); used > magicLen+2+greetingMax {
			t.Fatalf("%d bytes were read", used)
		}
		if err == nil {
			again, err := readHello(bytes.NewReader(h.encode()))
			if err != nil || !reflect.DeepEqual(again, h) {
				t.Fatalf("%+v became %+v, %v", h, again, err)
			}
		}
		_, _ = readReply(bytes.NewReader(append([]byte(replyMagic), b[min(len(b), magicLen):]...)))
	})
}

// Goal: a member that is greeted but does not finish its own greeting is never taken for
// connected. Method: stop behind the hello.
func TestHalfAHandshakeConnectsNobody(t *testing.T) {
	t.Parallel()
	m := newMember(t, 1, func(c *Config) {
		c.HandshakeTimeout = 100 * time.Millisecond
		c.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }
	})
	m.SetMembers(map[uint64]string{2: "127.0.0.1:1"})
	m.Serve(&m.recorder)
	conn, err := net.Dial("tcp", m.address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write(validHello().encode()); err != nil {
		t.Fatal(err)
	}
	_ = readAll(conn)
	m.mu.Lock()
	in := m.peer(2).in
	m.mu.Unlock()
	if in != nil {
		t.Error("it is connected")
	}
	waitFor(t, "reasons", func() bool {
		return strings.Contains(m.logged.String(), "no greeting within 100ms") &&
			strings.Contains(m.Stats()[2].LastError, "no connection and greeting within 100ms")
	})
}
