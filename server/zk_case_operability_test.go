package server

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/watch"
	"github.com/tenure-dev/tenure/wire"
)

// wordShapes are ways in which a word may arrive.
var wordShapes = map[string]func(nc *net.TCPConn, word string) error{
	"bare":    func(nc *net.TCPConn, word string) error { _, err := io.WriteString(nc, word); return err },
	"newline": func(nc *net.TCPConn, word string) error { _, err := io.WriteString(nc, word+"\n"); return err },
	"crlf":    func(nc *net.TCPConn, word string) error { _, err := io.WriteString(nc, word+"\r\n"); return err },
	"two segments": func(nc *net.TCPConn, word string) error {
		nc.SetNoDelay(true)
		if _, err := io.WriteString(nc, word[:2]); err != nil {
			return err
		}
		_, err := io.WriteString(nc, word[2:])
		return err
	},
	"half-closed at once": func(nc *net.TCPConn, word string) error {
		if _, err := io.WriteString(nc, word); err != nil {
			return err
		}
		return nc.CloseWrite()
	},
}

// probe sends a word in one shape and returns the answer and how long it took.
func probe(addr, word string, send func(*net.TCPConn, string) error) (string, time.Duration, error) {
	began := time.Now()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		return "", 0, err
	}
	defer nc.Close()
	nc.SetDeadline(began.Add(10 * time.Second))
	if err := send(nc.(*net.TCPConn), word); err != nil {
		return "", 0, err
	}
	answer, err := io.ReadAll(nc)
	return string(answer), time.Since(began), err
}

// Goal: health words are answered each time, whole and soon, however they arrive; what is
// disabled names itself and the setting; what is no word is closed. Method: 10,000
// connections with every word in every shape, serving and not serving.
func TestC143WordsAreAlwaysAnswered(t *testing.T) {
	const probes, atOnce = 10_000, 8
	s := startServer(t, Config{ZKWords: []string{"ruok", "srvr", "stat", "mntr", "conf", "isro", "envi"}})
	serving := map[string]string{"ruok": "imok", "srvr": "Zookeeper version: ", "stat": "Zookeeper version: ", "mntr": "zk_version\t",
		"conf": "clientPort=", "isro": "rw", "envi": "Environment:\n", "cons": "cons is not executed because it is not in the whitelist.\nThe setting zk-words ", "abcd": ""}
	refused := "This ZooKeeper instance is not currently serving requests\n"
	stopped := map[string]string{"ruok": "imok", "srvr": refused, "stat": refused, "mntr": refused,
		"conf": refused, "isro": "null", "envi": "Environment:\n", "cons": "cons is not executed ", "abcd": ""}
	type question struct{ word, shape string }
	var questions []question
	for word := range serving {
		for shape := range wordShapes {
			questions = append(questions, question{word, shape})
		}
	}
	slow := 0
	for state, want := range map[string]map[string]string{"serving": serving, "not serving": stopped} {
		s.serving.Store(state == "serving")
		took := make([]time.Duration, probes/2)
		each(probes/2, atOnce, func(i int) {
			q := questions[i%len(questions)]
			got, d, err := probe(s.ZKAddr().String(), q.word, wordShapes[q.shape])
			took[i] = d
			// A connection that is closed with unread bytes may be reset.
			if !strings.HasPrefix(got, want[q.word]) || (want[q.word] == "") != (got == "") || err != nil && q.word != "abcd" {
				t.Errorf("%s, %s, %s: %q, %v", state, q.word, q.shape, got, err)
			}
		})
		for _, d := range took {
			if d > time.Second {
				slow++
			}
		}
	}
	if slow > 0 {
		t.Errorf("%d answers took more than a second", slow)
	}
	s.serving.Store(true)
	waitFor(t, "all connections are gone", 10*time.Second, func() bool { return len(s.conns.all()) == 0 })
}

// Goal: a handshake is not taken for a word, whatever its bytes are. Method: handshakes
// whose bodies hold words, one with a word as its announced length.
func TestC143SessionsAreNotMisread(t *testing.T) {
	s := startServer(t, Config{ZKWords: allListed})
	r := dialRaw(t, s, zooKeeper)
	// The first 4 bytes behind the length are the protocol version.
	b := r.codec.AppendConnect(nil, &wire.ConnectRequest{TimeoutMs: 30_000, Password: []byte("srvrsrvrsrvrsrvr")})
	copy(b, "ruok")
	r.write(b)
	if reply, err := r.codec.DecodeConnectReply(r.read()); err != nil || reply.Session == 0 {
		t.Errorf("a handshake of version %q: %+v, %v", "ruok", reply, err)
	}
	if got := s.ask(t, "ruok"+string(b)); got != "imok" {
		t.Errorf("a handshake behind a word: %q", got)
	}
}

// Goal: no word holds up the server, however many watches there are. Method: 1,000,000
// watches of 100 connections; each word again and again; the longest answer, and the
// longest time for which the registry could not be had meanwhile.
func TestC137WordsOverManyWatches(t *testing.T) {
	const connections, paths = 100, 10_000
	s := startServer(t, Config{ZKWords: allListed})
	r := openAs(t, s, zooKeeper, 40*time.Second)
	var own *conn
	for _, c := range s.conns.all() {
		own = c
	}
	s.watches.Lock()
	for i := range watch.Watcher(connections) {
		id := 1_000_000 + i
		s.watches.conns[id] = own // all of one session, which no word cares about
		for p := range paths {
			s.watches.registry.Add(id, fmt.Sprintf("/watched/%d", p), watch.Data)
		}
	}
	s.watches.Unlock()
	r.must("/other", "", persistent)
	stop, done := make(chan struct{}), make(chan time.Duration)
	go func() {
		var longest time.Duration
		for {
			select {
			case <-stop:
				done <- longest
				return
			default:
			}
			began := time.Now()
			s.watches.count()
			longest = max(longest, time.Since(began))
		}
	}()
	for range 5 {
		for _, word := range []string{"wchs", "wchc", "wchp", "mntr", "dump", "cons", "stat"} {
			began := time.Now()
			got := s.ask(t, word)
			if took := time.Since(began); took > time.Second || got == "" {
				t.Errorf("%s: %d bytes after %v", word, len(got), took)
			}
		}
	}
	close(stop)
	if longest := <-done; longest > 200*time.Millisecond {
		t.Errorf("a word kept the watches for %v", longest)
	}
	if got := s.ask(t, "wchs"); got != fmt.Sprintf("%d connections watching %d paths\nTotal watches:%d\n", connections, paths, connections*paths) {
		t.Errorf("wchs: %s", got)
	}
	if got := s.ask(t, "wchp"); !strings.HasSuffix(got, "only 10000 watches are shown\n\n") {
		t.Errorf("wchp ends %q", got[len(got)-60:])
	}
}
