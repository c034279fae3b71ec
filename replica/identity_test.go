package replica

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Goal: a log of format 1, which had the member's id alone, opens and is given an ensemble
// of its own and an instance, which stay. Method: write the old record into a log; open it
// for reading only, twice for writing with settings that name another ensemble, and
// crash in between.
func TestIdentityOfFormat1IsUpgraded(t *testing.T) {
	fs := vfs.NewCrashableMem()
	l := newTestLog(t, fs)
	appendTest(t, l, 2, 5, 1)
	old := encodeUvarints(identityKey, 1, 1)
	if err := errors.Join(l.db.Set(identityKey, old, pebble.Sync), l.close()); err != nil {
		t.Fatal(err)
	}
	l, err := openLog("log", fs, 1, 0, nil, true, discard, func(error) {})
	if err != nil || l.identity != (identity{member: 1}) {
		t.Fatalf("reading only: %v, %v", l.identity, err)
	}
	l.close()
	var first identity
	for range 2 {
		l, err := openLog("log", fs, 1, 77, []uint64{1}, false, discard, func(error) {})
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case first == identity{}:
			first = l.identity
		case l.identity != first:
			t.Errorf("the identity was %v and is %v", first, l.identity)
		}
		if l.identity.cluster == 77 || l.identity.cluster == 0 || l.identity.instance == 0 || l.lastIndex() != 5 {
			t.Errorf("identity %v, last entry %d", l.identity, l.lastIndex())
		}
		crashed := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 0, RNG: rand.New(rand.NewPCG(1, 1))})
		l.close()
		fs = crashed
	}
}

// Goal: a new log has the ensemble that it was told, or one of its own, and two logs never
// have one instance.
func TestIdentityOfNewLogs(t *testing.T) {
	var drawn []identity
	for _, cluster := range []uint64{9, 9, 0, 0} {
		l, err := openLog("log", vfs.NewMem(), 3, cluster, []uint64{3}, false, discard, func(error) {})
		if err != nil {
			t.Fatal(err)
		}
		drawn = append(drawn, l.identity)
		l.close()
	}
	if drawn[0].cluster != 9 || drawn[1].cluster != 9 || drawn[2].cluster == drawn[3].cluster || drawn[2].cluster == 0 {
		t.Errorf("ensembles %x", drawn)
	}
	if drawn[0].instance == drawn[1].instance || drawn[0].instance == 0 {
		t.Errorf("instances %x", drawn)
	}
}

// Goal: a member that comes back without its log is refused by whoever has met it before,
// also after a crash just behind the first contact; others are not concerned. Method: the
// log of member 1 on a disk that loses what is not synced.
func TestWipedMemberIsRefused(t *testing.T) {
	fs := vfs.NewCrashableMem()
	l := newTestLog(t, fs)
	if err := errors.Join(l.known(2, 0x22), l.known(3, 0x33), l.known(2, 0x22)); err != nil {
		t.Fatal(err)
	}
	fs = fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 0, RNG: rand.New(rand.NewPCG(1, 1))})
	l.close()
	l = newTestLog(t, fs)
	defer l.close()
	for _, row := range []struct {
		member, instance uint64
		want             string
	}{
		{2, 0x22, ""},
		{2, 0x23, "member 2 is instance 0000000000000023, the one known is 0000000000000022: remove it and add it again under a new id"},
		{3, 0, "names no instance"},
		{3, 0x33, ""},
		{4, 0x22, ""},
	} {
		err := l.known(row.member, row.instance)
		if (err == nil) != (row.want == "") || err != nil && (!errors.Is(err, ErrWiped) || !strings.Contains(err.Error(), row.want)) {
			t.Errorf("member %d, instance %x: %v, want %q", row.member, row.instance, err, row.want)
		}
	}
	key := appendPeerKey(nil, 5)
	if err := errors.Join(l.db.Set(key, encodeUvarints(key[:8], 1), pebble.Sync), l.loadPeers()); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a record of another key: %v", err)
	}
}
