package wire

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/znode"
)

const rawPassword = "'0123456789abcdef'"

var (
	goldenPassword = [16]byte([]byte("0123456789abcdef"))
	goldenOwner    = session.Owner{Origin: 0xb1b2b3b4b5b6b7b8, Bind: 300}
)

type goldenOp struct {
	bytes string
	op    znode.Op
}

// goldenOps are the operations of the log with their bytes. Changing one makes old logs
// unreadable: add a new version instead.
var goldenOps = []goldenOp{
	{"01 00 02'/a' 00 00 00", &znode.Create{Path: "/a"}},
	{"01 33 02'/a' 04 010203 01 8008", &znode.Create{Path: "/a", Data: goldenData, ACL: znode.OpenACL, WantStat: true,
		Mode: znode.Mode{Kind: znode.TTL, Sequential: true}, TTLMs: 512}},
	{"01 01 02'/a' 01 03 3e 06'digest' 03'u:h' 00", &znode.Create{Path: "/a", Data: []byte{}, Mode: znode.Mode{Kind: znode.Ephemeral},
		ACL: []znode.ACL{{Perms: 31, Scheme: "digest", ID: "u:h"}}}},
	{"02 02'/a' 01", &znode.Delete{Path: "/a", Version: -1}},
	{"03 02'/a' 00 06", &znode.SetData{Path: "/a", Version: 3}},
	{"04 02'/a' 02 04", &znode.SetACL{Path: "/a", ACL: []znode.ACL{}, Version: 2}},
	{"06 02 05 02'/a' 00 02 02'/b' ffffffff0f", &znode.Multi{Ops: []znode.Op{
		&znode.Check{Path: "/a"}, &znode.Delete{Path: "/b", Version: -1 << 31}}}},
	{"06 00", &znode.Multi{Ops: []znode.Op{}}},
	{"09 02'/a'", &znode.Reap{Path: "/a"}},
}

// Those about sessions, and what they were in the first version, without owners.
var (
	goldenSessionOps = []goldenOp{
		{"07 a09c01" + rawPassword + "8008", &znode.OpenSession{TimeoutMs: 10000, Password: goldenPassword, Seen: 512}},
		{"08 12 01 ac02 b1b2b3b4b5b6b7b8", &znode.CloseSession{Session: 9, Expired: true, Owner: goldenOwner}},
		{"08 12 00 00", &znode.CloseSession{Session: 9}},
		{"0a 12" + rawPassword + "8008", &znode.ResumeSession{Session: 9, Password: goldenPassword, Seen: 512}},
	}
	goldenOwnerlessOps = []goldenOp{
		{"07 a09c01" + rawPassword, &znode.OpenSession{TimeoutMs: 10000, Password: goldenPassword}},
		{"08 12 01", &znode.CloseSession{Session: 9, Expired: true}},
	}
)

// Goal: log entries that are written stay readable.
// Method: bytes written by hand for every operation, decoded and encoded again.
func TestEntryBytes(t *testing.T) {
	for _, g := range slices.Concat(goldenOps, goldenSessionOps) {
		p := Proposal{Origin: 0xa1a2a3a4a5a6a7a8, ID: 300, Txn: znode.Txn{
			Session: 9, Owner: session.Owner{Origin: 0xa1a2a3a4a5a6a7a8, Bind: 5},
			Seq: 2, Acked: 1, Auth: []znode.Identity{{Scheme: "ip", ID: "x"}}, Op: g.op,
		}}
		wantProposal := raw(t, "02 a1a2a3a4a5a6a7a8 ac02 12 05 04 02 01 02'ip' 01'x'"+g.bytes)
		if got := AppendProposal(nil, &p); !bytes.Equal(got, wantProposal) {
			t.Errorf("%s: proposal\n%x, want\n%x", g.bytes, got, wantProposal)
		}
		stamp := znode.Stamp{TimeMs: 1_800_000_000_000, Rules: znode.Rules{NoTTL: true, Full: true}}
		want := append(raw(t, "01 05 80c0e285e368 01"), byte(len(wantProposal)))
		want = append(want, wantProposal...)
		if got := AppendEntry(nil, stamp, [][]byte{wantProposal}); !bytes.Equal(got, want) {
			t.Errorf("%s: entry\n%x, want\n%x", g.bytes, got, want)
		}
		gotStamp, got, err := DecodeEntry(want)
		if err != nil || gotStamp != stamp || !reflect.DeepEqual(got, []Proposal{p}) {
			t.Errorf("%s: decoded %+v %+v, %v", g.bytes, gotStamp, got, err)
		}
	}
}

// Goal: logs of the first version, which knew no owners, stay readable.
// Method: as TestEntryBytes; what is written again is of this version and means the same.
func TestOwnerlessEntryBytes(t *testing.T) {
	for _, g := range slices.Concat(goldenOps, goldenOwnerlessOps) {
		want := Proposal{Origin: 0xa1a2a3a4a5a6a7a8, ID: 300, Txn: znode.Txn{Session: 9, Seq: 2, Acked: 1, Op: g.op}}
		old := raw(t, "01 a1a2a3a4a5a6a7a8 ac02 12 04 02 00"+g.bytes)
		for _, proposal := range [][]byte{old, AppendProposal(nil, &want)} {
			_, got, err := DecodeEntry(AppendEntry(nil, znode.Stamp{}, [][]byte{proposal}))
			if err != nil || !reflect.DeepEqual(got, []Proposal{want}) {
				t.Errorf("%s: %x decoded as %+v, %v", g.bytes, proposal, got, err)
			}
		}
	}
}

// Goal: an entry that is not what was written is refused and the place is named.
// Method: one broken rule each.
func TestEntryErrors(t *testing.T) {
	const head, proposal = "01 00 00 01", "01 0000000000000000 00 00 00 00 00"
	for text, want := range map[string]string{
		"":                                     "offset 0: bytes missing (1)",
		"02 00 00 00":                          "offset 0: format version is not 1 (2)",
		"01 08 00 00":                          "offset 1: unknown bits in the rules (8)",
		"01 00 00 00 00":                       "offset 4: bytes behind the end (1)",
		"01 00 8000 00":                        "offset 2: varint longer than needed (0)",
		"01 00 ffffffffffffffffffff 00":        "offset 2: not a varint",
		head + "05" + strings.Repeat("00", 20): "offset 5: unknown version of a proposal (0)",
		head + "05 03" + strings.Repeat("00", 20):                                 "offset 5: unknown version of a proposal (3)",
		head + "11" + proposal + "00 0000":                                        "offset 20: unknown kind of operation in front of this (0)",
		head + "11" + proposal + "0b 0000":                                        "unknown kind of operation in front of this (11)",
		head + "12" + proposal + "06 01 06 00":                                    "count beyond the end",
		head + "14" + proposal + "06 01 06 00 0000":                               "unknown kind of operation in front of this (6)",
		head + "14" + proposal + "01 04 00 00 00 00":                              "offset 20: unknown mode of a create (4)",
		head + "14" + proposal + "01 40 00 00 00 00":                              "offset 20: unknown mode of a create (64)",
		head + "12" + proposal + "02 00 00 00":                                    "offset 22: bytes behind the proposal (1)",
		head + "11" + proposal + "08 00 02":                                       "offset 21: flag is neither 0 nor 1 (2)",
		head + "24" + proposal + "01 00 00 00 03 3e 05'world' 06'anyone' 00 0000": "open access list written in full",
		head + "16" + proposal + "02 00 8080808010 00":                            "not a 32-bit number",
	} {
		_, got, err := DecodeEntry(raw(t, text))
		if err == nil || got != nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// Goal: what could not be read back is not written.
// Method: operations that a log entry has no place for.
func TestProposalPanicsInsteadOfWritingNonsense(t *testing.T) {
	for name, op := range map[string]znode.Op{
		"none":                 nil,
		"multi in multi":       &znode.Multi{Ops: []znode.Op{&znode.Multi{}}},
		"setACL in multi":      &znode.Multi{Ops: []znode.Op{&znode.SetACL{}}},
		"openSession in multi": &znode.Multi{Ops: []znode.Op{&znode.OpenSession{}}},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: written", name)
				}
			}()
			AppendProposal(nil, &Proposal{Txn: znode.Txn{Op: op}})
		}()
	}
	for _, owner := range []session.Owner{{Origin: 2, Bind: 1}, {Origin: 1}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("owner %+v: written", owner)
				}
			}()
			AppendProposal(nil, &Proposal{Origin: 1, Txn: znode.Txn{Owner: owner, Op: &znode.Reap{}}})
		}()
	}
}

// Goal: results, changes and sessions that are stored stay readable.
// Method: bytes written by hand, decoded and encoded again.
func TestResultBytes(t *testing.T) {
	const stat = "02 04 06 08 0a 0c 0e 10 12 14 16"
	tests := []struct {
		bytes string
		want  znode.Result
	}{
		{"01 00 c901 c601", znode.Result{Err: znode.NoNode, Zxid: 99}},
		{"01 01 00 c601 02'/a'", znode.Result{Kind: znode.ResultCreate, Zxid: 99, Path: "/a"}},
		{"01 02 00 c601 02'/a'" + stat, znode.Result{Kind: znode.ResultCreateStat, Zxid: 99, Path: "/a", Stat: goldenStat}},
		{"01 03 00 c601", znode.Result{Kind: znode.ResultDelete, Zxid: 99}},
		{"01 04 00 c601" + stat, znode.Result{Kind: znode.ResultSetData, Zxid: 99, Stat: goldenStat}},
		{"01 05 00 c601" + stat, znode.Result{Kind: znode.ResultSetACL, Zxid: 99, Stat: goldenStat}},
		{"01 06 00 c601", znode.Result{Kind: znode.ResultCheck, Zxid: 99}},
		{"01 07 cd01 c601 02 06 00 00 00 cd01 00", znode.Result{Kind: znode.ResultMulti, Err: znode.BadVersion, Zxid: 99,
			Sub: []znode.Result{{Kind: znode.ResultCheck}, {Err: znode.BadVersion}}}},
		{"01 08 00 c601 c601 a09c01" + rawPassword, znode.Result{Kind: znode.ResultSession, Zxid: 99,
			Session: session.Session{ID: 99, TimeoutMs: 10000, Password: goldenPassword}}},
	}
	for _, tt := range tests {
		want := raw(t, tt.bytes)
		if got := AppendResult(nil, &tt.want); !bytes.Equal(got, want) {
			t.Errorf("%s: encoded %x", tt.bytes, got)
		}
		if got, err := DecodeResult(want); err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: got %+v, %v", tt.bytes, got, err)
		}
	}
	for text, want := range map[string]string{
		"01 09 00 00":              "offset 1: unknown kind of result (9)",
		"01 07 00 00 01 07 00 00":  "multi inside a multi",
		"01 07 00 00 02 06 00 00 ": "count beyond the end",
		"01 00 00 00 00":           "bytes behind the end",
		"02 00 00 00":              "format version is not 1 (2)",
	} {
		if _, err := DecodeResult(raw(t, text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// Goal and method: as TestResultBytes.
func TestChangesAndSessionBytes(t *testing.T) {
	changes := []znode.Change{
		{Type: znode.EventCreated, Path: "/a", ACL: znode.OpenACL, ParentACL: znode.OpenACL},
		{Type: znode.EventDataChanged, Path: "/b", ACL: []znode.ACL{{Perms: 1, Scheme: "ip", ID: "x"}}},
	}
	want := raw(t, "01 02 01 02'/a' 01 01 03 02'/b' 03 02 02'ip' 01'x' 00")
	if got := AppendChanges(nil, changes); !bytes.Equal(got, want) {
		t.Errorf("changes %x, want %x", got, want)
	}
	if got, err := DecodeChanges(want); err != nil || !reflect.DeepEqual(got, changes) {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := DecodeChanges(raw(t, "01 01 04 02'/a' 01 01")); err == nil || !strings.Contains(err.Error(), "unknown type of change") {
		t.Errorf("a change of type 4: %v", err)
	}
	for text, sess := range map[string]session.Session{
		"01 c601 a09c01" + rawPassword:                           {ID: 99, TimeoutMs: 10000, Password: goldenPassword},
		"02 c601 a09c01" + rawPassword + "ac02 b1b2b3b4b5b6b7b8": {ID: 99, TimeoutMs: 10000, Password: goldenPassword, Owner: goldenOwner},
	} {
		want := raw(t, text)
		if got := AppendSession(nil, &sess); !bytes.Equal(got, want) {
			t.Errorf("session %x, want %x", got, want)
		}
		if got, err := DecodeSession(want); err != nil || got != sess {
			t.Errorf("got %+v, %v", got, err)
		}
	}
	for text, want := range map[string]string{
		"00 c601 a09c01" + rawPassword:                       "offset 0: unknown version of a session (0)",
		"02 c601 a09c01" + rawPassword + "00":                "session of nobody",
		"02 c601 a09c01" + rawPassword + "01 b1b2b3b4b5b6b7": "bytes missing (1)",
	} {
		if _, err := DecodeSession(raw(t, text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
