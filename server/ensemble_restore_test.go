package server

import (
	"bytes"
	"log/slog"
	"slices"
	"testing"
	"time"
)

// Goal: a backup becomes a new ensemble: all members have one state, zxids are above all that
// the old ensemble gave (P8), and sessions go on. Method: snapshot of a running server,
// restored into three directories that found an ensemble; the session resumes there.
func TestBackupBecomesAnEnsemble(t *testing.T) {
	t.Parallel()
	old := startServer(t, Config{})
	client := openAs(t, old, subprotocolJute, 30*time.Second)
	client.must("/a", "x", persistent)
	client.must("/e", "", ephemeral)
	var file bytes.Buffer
	info, err := old.writeSnapshot(&file)
	if err != nil {
		t.Fatal(err)
	}
	client.must("/late", "", persistent)
	last := old.store.LastZxid()
	stopServer(t, old)
	configs := memberConfigs(t, 3)
	for _, c := range configs {
		if _, err := RestoreDataDir(c.DataDir, bytes.NewReader(file.Bytes()), slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
	}
	list := startMembers(t, configs)
	resumed := resumeRaw(t, list[1], subprotocolJute, client.session)
	if resumed.session.Session != client.session.Session {
		t.Fatalf("session %v went on as %v", client.session.Session, resumed.session.Session)
	}
	resumed.must("/new", "", persistent)
	if got := resumed.stat("/new").Czxid; got <= last || got>>32 <= info.Zxid>>32 {
		t.Errorf("zxid 0x%x in the new ensemble, the old one gave up to 0x%x", got, last)
	}
	for _, s := range list {
		names := openRaw(t, s).children("/")
		slices.Sort(names)
		if want := []string{"a", "e", "new", "zookeeper"}; !slices.Equal(names, want) {
			t.Errorf("member %d has %v, want %v", s.cfg.MemberID, names, want)
		}
	}
	waitFor(t, "one state", ensembleDeadline, func() bool {
		e := readStatus(t, list[0])
		return e.State == StateHealthy && !slices.ContainsFunc(e.Members, func(m MemberStatus) bool {
			return m.Applied != e.Members[0].Applied || m.Digest != e.Members[0].Digest
		})
	})
}
