package server

import (
	"encoding/binary"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// allListed is a white list with every word.
var allListed = []string{allWords}

// askWord sends a four-letter word, or any text, and returns all that is answered.
func askWord(t testing.TB, addr, text string) string {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(nc, text); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(nc)
	if err != nil {
		t.Fatalf("%q: %v behind %q", text, err, answer)
	}
	return string(answer)
}

func (s *Server) ask(t testing.TB, text string) string {
	t.Helper()
	return askWord(t, s.ZKAddr().String(), text)
}

// figuresOf reads mntr: the keys without zk_.
func figuresOf(t testing.TB, mntr string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for line := range strings.Lines(mntr) {
		key, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if _, twice := all[key]; !ok || twice || !strings.HasPrefix(key, "zk_") {
			t.Errorf("mntr has the line %q", line)
		}
		all[strings.TrimPrefix(key, "zk_")] = value
	}
	return all
}

// Goal: what is answered without being asked for is cheap, names nobody and changes
// nothing, and the setting adds to it; misspelt words are refused. Method: every word by
// default, by name and by *.
func TestWordsWhiteList(t *testing.T) {
	if got := openWords(); got != "conf,dirs,envi,gtmk,hash,isro,mntr,ruok,srvr,wchs" {
		t.Errorf("listed by default: %s", got)
	}
	byDefault := startServer(t, Config{})
	one := startServer(t, Config{ZKWords: []string{"cons"}})
	for i := range zkWords {
		w := &zkWords[i]
		if w.name == "stmk" {
			continue
		}
		refusal := w.name + " is not executed because it is not in the whitelist.\nThe setting zk-words can add it.\n"
		if got := byDefault.ask(t, w.name); (got == refusal) == w.open || got == "" {
			t.Errorf("%s by default: %q", w.name, got)
		}
		if got := one.ask(t, w.name); (got == refusal) == (w.name == "cons") {
			t.Errorf("%s where cons is listed: %q", w.name, got)
		}
	}
	err := Config{DataDir: "/d", ZKWords: []string{"ruok", "roku"}}.Validate()
	if err == nil || !strings.Contains(err.Error(), "zk-words") || !strings.Contains(err.Error(), `"roku"`) {
		t.Errorf("a misspelt word: %v", err)
	}
	if err := (Config{DataDir: "/d", ZKWords: allListed}).Validate(); err != nil {
		t.Error(err)
	}
}

// Goal: tools that read words with patterns can read this server's. Method: go-zookeeper's
// own readers, and lines as strict as those of Telegraf and kazoo, with a client connected.
func TestWordsReadByTools(t *testing.T) {
	s := startServer(t, Config{ZKWords: allListed})
	r := openAs(t, s, zooKeeper, 30*time.Second)
	r.must("/e", "data", ephemeral)
	addr := []string{s.ZKAddr().String()}
	if ok := zk.FLWRuok(addr, 20*time.Second); !ok[0] {
		t.Error("ruok is not ok")
	}
	stats, ok := zk.FLWSrvr(addr, 20*time.Second)
	if !ok || stats[0].Mode != zk.ModeStandalone || stats[0].NodeCount != 5 || stats[0].Counter != 2 || !strings.HasPrefix(stats[0].Version, "3.9.5-") {
		t.Errorf("srvr: %+v, %v", stats[0], stats[0].Error)
	}
	// It takes no connection without a session for one, and each has the line of its own.
	cons, _ := zk.FLWCons(addr, 20*time.Second)
	clients := cons[0].Clients
	if len(clients) != 1 || clients[0].Received != 2 || clients[0].Sent != 2 || clients[0].SessionID != int64(r.session.Session) ||
		clients[0].LastOperation != "CREA" || clients[0].Timeout != 30_000 || clients[0].Lcxid != 1 || clients[0].Lzxid != 2 {
		t.Errorf("cons: %+v\n%s", clients, s.ask(t, "cons"))
	}
	line := regexp.MustCompile(`^zk_\w+\t[\w.\-]+`)
	mntr := s.ask(t, "mntr")
	for l := range strings.Lines(mntr) {
		if !line.MatchString(l) || strings.Contains(l, "e+") {
			t.Errorf("mntr: %q", l)
		}
	}
	if !strings.HasPrefix(mntr, "zk_version\t3.9.5-") {
		t.Errorf("mntr begins %.40q", mntr)
	}
	if got := s.ask(t, "envi"); !strings.Contains(got, "\nzookeeper.version=3.9.5-") {
		t.Errorf("envi:\n%s", got)
	}
}

// Goal: mntr tells the truth about what clients do. Method: figures before and after a
// known number of requests, znodes, watches and connections, and after all of it is gone.
func TestWordsMntrMoves(t *testing.T) {
	s := startServer(t, Config{ZKWords: allListed})
	was := figuresOf(t, s.ask(t, "mntr"))
	a, b := openAs(t, s, zooKeeper, 30*time.Second), openAs(t, s, subprotocolJute, 30*time.Second)
	a.must("/d", "0123456789", persistent)
	a.must("/e", "", ephemeral)
	b.watched(wire.OpGetData, "/d")
	b.watched(wire.OpGetChildren2, "/d")
	if e := a.set("/d", "01234"); e != znode.OK {
		t.Fatal(e)
	}
	if _, e := b.get("/d"); e != znode.OK || len(b.events) != 1 { // behind the event
		t.Fatalf("%v, events %v", e, b.events)
	}
	waitFor(t, "the first word's connection is gone", 5*time.Second, func() bool { return len(s.conns.all()) == 2 })
	now := figuresOf(t, s.ask(t, "mntr"))
	moved := func(name string, by int64) {
		t.Helper()
		before, err1 := strconv.ParseInt(was[name], 10, 64)
		after, err2 := strconv.ParseInt(now[name], 10, 64)
		if err1 != nil || err2 != nil || after-before != by {
			t.Errorf("%s went from %q to %q, want %d more", name, was[name], now[name], by)
		}
	}
	moved("znode_count", 2)
	moved("ephemerals_count", 1)
	moved("approximate_data_size", 5)
	moved("watch_count", 1)
	moved("global_sessions", 2)
	moved("num_alive_connections", 2)
	moved("packets_received", 1+8) // this question, 2 handshakes, 6 requests
	moved("packets_sent", 1+9)     // the answer before, as many, and the event
	moved("proposal_count", 5)
	moved("connection_request_count", 2)
	moved("cnt_updatelatency", 5)
	moved("cnt_readlatency", 3)
	moved("outstanding_requests", 0)
	if n, _ := strconv.Atoi(now["watch_bytes"]); n < 30 || n > 100 {
		t.Errorf("%d bytes of one event", n)
	}
	for _, name := range []string{"open_file_descriptor_count", "max_file_descriptor_count", "uptime", "cnt_fsynctime", "response_bytes", "bytes_received_count"} {
		if n, err := strconv.ParseInt(now[name], 10, 64); err != nil || n <= 0 {
			t.Errorf("%s is %q", name, now[name])
		}
	}
	a.call(wire.Request{Op: wire.OpCloseSession})
	b.drop()
	waitFor(t, "the connections are gone", 5*time.Second, func() bool {
		now = figuresOf(t, s.ask(t, "mntr"))
		return now["num_alive_connections"] == was["num_alive_connections"]
	})
	moved("znode_count", 1)
	moved("ephemerals_count", 0)
	moved("watch_count", 0)
	moved("connection_drop_count", 1)
}

// Goal: requests that wait show as outstanding, in mntr and on their connection. Method:
// hold the state lock that a read needs.
func TestWordsOutstanding(t *testing.T) {
	s := startServer(t, Config{ZKWords: allListed})
	r := openAs(t, s, zooKeeper, 30*time.Second)
	s.state.Lock()
	unlock := sync.OnceFunc(s.state.Unlock)
	defer unlock()    // or a failed test could not end
	var frames []byte // in one segment: the reader goes on with what it has
	for xid := range int32(3) {
		b := r.codec.AppendRequest(nil, &wire.Request{Xid: xid + 1, Op: wire.OpGetData, Body: &wire.PathWatch{Path: "/"}})
		frames = append(rawInt(frames, int32(len(b))), b...)
		r.sent[xid+1] = wire.OpGetData
	}
	if _, err := r.link.NetConn().Write(frames); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "3 outstanding in mntr", 5*time.Second, func() bool {
		return figuresOf(t, s.ask(t, "mntr"))["outstanding_requests"] == "3"
	})
	if got := s.ask(t, "cons"); !strings.Contains(got, "(queued=3,recved=4,sent=1,") {
		t.Errorf("cons:\n%s", got)
	}
	unlock()
	for range 3 {
		r.next()
	}
	if got := figuresOf(t, s.ask(t, "mntr"))["outstanding_requests"]; got != "0" {
		t.Errorf("%s outstanding after the answers", got)
	}
}

// Goal: crst and srst begin anew exactly what ZooKeeper's do. Method: some requests, then
// either, and what the words say.
func TestWordsReset(t *testing.T) {
	s := startServer(t, Config{ZKWords: allListed})
	r := openAs(t, s, zooKeeper, 30*time.Second)
	for range 10 {
		r.set("/", "x")
	}
	if got := s.ask(t, "crst"); got != "Connection stats reset.\n" {
		t.Errorf("crst: %q", got)
	}
	if got := s.ask(t, "cons"); !strings.Contains(got, "recved=0,sent=0,sid=") || !strings.Contains(got, "lop=NA,") ||
		!strings.Contains(got, "lcxid=0xffffffffffffffff,lzxid=0xffffffffffffffff,lresp=0,") {
		t.Errorf("cons after crst:\n%s", got)
	}
	before := figuresOf(t, s.ask(t, "mntr"))
	if got := s.ask(t, "srst"); got != "Server stats reset.\n" {
		t.Errorf("srst: %q", got)
	}
	after := figuresOf(t, s.ask(t, "mntr"))
	for name, want := range map[string]string{
		"packets_received": "1", "packets_sent": "1", "avg_latency": "0.0", "max_latency": "0",
		"last_client_response_size": "-1", "znode_count": before["znode_count"], "proposal_count": before["proposal_count"],
	} {
		if after[name] != want {
			t.Errorf("%s after srst is %s, want %s", name, after[name], want)
		}
	}
	if before["avg_latency"] == "0.0" || before["packets_received"] != "14" { // 1 handshake, 10 requests, 3 words
		t.Errorf("before srst: %v", before)
	}
}

// Goal: stmk takes its mask from the 8 bytes behind it and gtmk returns it.
func TestWordsTraceMask(t *testing.T) {
	s := startServer(t, Config{ZKWords: allListed})
	if got := s.ask(t, "gtmk"); got != "306" {
		t.Errorf("at first: %q", got)
	}
	if got := s.ask(t, string(binary.BigEndian.AppendUint64([]byte("stmk"), 1<<40))); got != "1099511627776" {
		t.Errorf("stmk: %q", got)
	}
	if got := s.ask(t, "gtmk"); got != "1099511627776" {
		t.Errorf("after stmk: %q", got)
	}
}

// Goal: dump, wchc and wchp name who is there and what they hold. Method: two sessions
// with ephemerals and watches, one of them on no connection any more.
func TestWordsNameSessions(t *testing.T) {
	s := startServer(t, Config{ZKWords: allListed})
	a, b := openAs(t, s, zooKeeper, 30*time.Second), openAs(t, s, zooKeeper, 40*time.Second)
	a.must("/a1", "", ephemeral)
	a.must("/a2", "", ephemeral)
	b.watched(wire.OpExists, "/w1")
	b.watched(wire.OpGetChildren, "/")
	a.watched(wire.OpExists, "/w1")
	idA, idB := a.session.Session.String(), b.session.Session.String()
	if got, want := s.ask(t, "wchp"), "/\n\t"+idB+"\n/w1\n\t"+idA+"\n\t"+idB+"\n\n"; got != want {
		t.Errorf("wchp: %q, want %q", got, want)
	}
	if got, want := s.ask(t, "wchc"), idA+"\n\t/w1\n"+idB+"\n\t/\n\t/w1\n\n"; got != want {
		t.Errorf("wchc: %q, want %q", got, want)
	}
	if got := s.ask(t, "wchs"); got != "2 connections watching 2 paths\nTotal watches:3\n" {
		t.Errorf("wchs: %q", got)
	}
	b.drop()
	waitFor(t, "b is gone", 5*time.Second, func() bool { return !strings.Contains(s.ask(t, "wchc"), idB) })
	date := `\w{3} \w{3} \d\d \d\d:\d\d:\d\d \w+ \d{4}`
	dump := regexp.MustCompile(`\ASessionTracker dump:\nSession Sets \(2\)/\(2\):\n1 expire at ` + date + `:\n\t` + idA + `\n1 expire at ` + date + `:\n\t` + idB +
		`\nephemeral nodes dump:\nSessions with Ephemerals \(1\):\n` + idA + `:\n\t/a1\n\t/a2\n` +
		`Connections dump:\nConnections Sets \(1\)/\(1\):\n1 expire at ` + date + `:\n\tip: /127\.0\.0\.1:\d+ sessionId: ` + idA + `\n\z`)
	if got := s.ask(t, "dump"); !dump.MatchString(got) {
		t.Errorf("dump:\n%s", got)
	}
}

// Goal: a whitelist in zoo.cfg lists the same words here. Method: one with blanks and a
// word that ZooKeeper no longer has.
func TestWordsFromZooCfg(t *testing.T) {
	path := filepath.Join(t.TempDir(), "zoo.cfg")
	text := "dataDir=/d\nclientPort=2181\nclientPortAddress=127.0.0.1\n4lw.commands.whitelist=stat, ruok,reqs ,wchs\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	loaded, err := LoadConfig(Sources{ZooCfg: path})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(loaded.Config.ZKWords, ","); got != "stat,ruok,wchs" {
		t.Errorf("listed: %s", got)
	}
}
