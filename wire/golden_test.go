package wire

import (
	"bytes"
	"encoding/hex"
	"reflect"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/znode"
)

// raw turns hexadecimal digits and 'quoted text', with any white space between, into
// bytes.
func raw(t testing.TB, text string) []byte {
	t.Helper()
	var out []byte
	for i, part := range strings.Split(text, "'") {
		if i%2 == 1 {
			out = append(out, part...)
			continue
		}
		b, err := hex.DecodeString(strings.Join(strings.Fields(part), ""))
		if err != nil {
			t.Fatalf("%q: %v", part, err)
		}
		out = append(out, b...)
	}
	return out
}

// Parts of the golden messages, written down from ZooKeeper's records.
const (
	rawHeader = "00000007"        // xid
	rawPath   = "00000002'/a'"    // a ustring
	rawData   = "00000003 010203" // a buffer
	rawOpen   = "00000001 0000001f 00000005'world' 00000006'anyone'"
	rawStat   = "0000000000000001 0000000000000002 0000000000000003 0000000000000004" +
		"00000005 00000006 00000007 0000000000000008 00000009 0000000a 000000000000000b"
	rawReply = "00000007 0000000000000063 00000000" // xid, zxid 99, err
)

var goldenStat = znode.Stat{
	Czxid: 1, Mzxid: 2, Ctime: 3, Mtime: 4, Version: 5, Cversion: 6, Aversion: 7,
	EphemeralOwner: 8, DataLength: 9, NumChildren: 10, Pzxid: 11,
}

var goldenData = []byte{1, 2, 3}

// goldenRequests are in one table per file so that both directions use the same bytes.
var goldenRequests = []struct {
	name, bytes string
	want        Request
}{
	{"create", "00000001" + rawPath + rawData + rawOpen + "00000003",
		Request{Op: OpCreate, Body: &znode.Create{Path: "/a", Data: goldenData, ACL: znode.OpenACL,
			Mode: znode.Mode{Kind: znode.Ephemeral, Sequential: true}}}},
	{"create2 of null with a null access list", "0000000f" + rawPath + "ffffffff ffffffff 00000002",
		Request{Op: OpCreate2, Body: &znode.Create{Path: "/a", Mode: znode.Mode{Sequential: true}, WantStat: true}}},
	{"createContainer", "00000013" + rawPath + "00000000" + rawOpen + "00000004",
		Request{Op: OpCreateContainer, Body: &znode.Create{Path: "/a", Data: []byte{}, ACL: znode.OpenACL,
			Mode: znode.Mode{Kind: znode.Container}, WantStat: true}}},
	{"createTTL", "00000015" + rawPath + rawData + rawOpen + "00000006 000000ffffffffff",
		Request{Op: OpCreateTTL, Body: &znode.Create{Path: "/a", Data: goldenData, ACL: znode.OpenACL,
			Mode: znode.Mode{Kind: znode.TTL, Sequential: true}, TTLMs: 1<<40 - 1, WantStat: true}}},
	{"delete", "00000002" + rawPath + "ffffffff", Request{Op: OpDelete, Body: &znode.Delete{Path: "/a", Version: -1}}},
	{"exists", "00000003" + rawPath + "01", Request{Op: OpExists, Body: &PathWatch{"/a", true}}},
	{"getData", "00000004" + rawPath + "00", Request{Op: OpGetData, Body: &PathWatch{"/a", false}}},
	{"setData", "00000005" + rawPath + rawData + "00000009",
		Request{Op: OpSetData, Body: &znode.SetData{Path: "/a", Data: goldenData, Version: 9}}},
	{"getACL", "00000006" + rawPath, Request{Op: OpGetACL, Body: &PathOnly{"/a"}}},
	{"setACL", "00000007" + rawPath + "00000001 0000005f 00000006'digest' 00000003'u:h'" + "00000000",
		Request{Op: OpSetACL, Body: &znode.SetACL{Path: "/a", ACL: []znode.ACL{{Perms: 95, Scheme: "digest", ID: "u:h"}}}}},
	{"getChildren", "00000008" + rawPath + "01", Request{Op: OpGetChildren, Body: &PathWatch{"/a", true}}},
	{"sync", "00000009" + rawPath, Request{Op: OpSync, Body: &PathOnly{"/a"}}},
	{"ping", "0000000b", Request{Op: OpPing}},
	{"getChildren2", "0000000c" + rawPath + "00", Request{Op: OpGetChildren2, Body: &PathWatch{"/a", false}}},
	{"reconfig", "00000010 00000001'j' 00000000 00000001'n' ffffffffffffffff",
		Request{Op: OpReconfig, Body: &Reconfig{"j", "", "n", -1}}},
	{"checkWatches", "00000011" + rawPath + "00000003", Request{Op: OpCheckWatches, Body: &RemoveWatches{"/a", WatcherAny}}},
	{"removeWatches", "00000012" + rawPath + "00000005", Request{Op: OpRemoveWatches, Body: &RemoveWatches{"/a", WatcherRecursive}}},
	{"auth", "00000064 00000000 00000006'digest' 00000003'u:p'", Request{Op: OpAuth, Body: &Auth{"digest", []byte("u:p")}}},
	{"sasl", "00000066" + rawData, Request{Op: OpSASL, Body: &SASL{goldenData}}},
	{"setWatches", "00000065 0000000000000005 00000001" + rawPath + "00000000 00000001 00000001'/'",
		Request{Op: OpSetWatches, Body: &SetWatches{RelZxid: 5, Data: []string{"/a"}, Exist: []string{}, Child: []string{"/"}}}},
	{"setWatches2", "00000069 0000000000000005 00000000 00000000 00000000 00000001" + rawPath + "00000002" + rawPath + "00000001'/'",
		Request{Op: OpSetWatches2, Body: &SetWatches{RelZxid: 5, Data: []string{}, Exist: []string{}, Child: []string{},
			Persistent: []string{"/a"}, Recursive: []string{"/a", "/"}}}},
	{"getEphemerals", "00000067" + rawPath, Request{Op: OpGetEphemerals, Body: &PathOnly{"/a"}}},
	{"getAllChildrenNumber", "00000068" + rawPath, Request{Op: OpGetAllChildrenNumber, Body: &PathOnly{"/a"}}},
	{"addWatch", "0000006a" + rawPath + "00000001", Request{Op: OpAddWatch, Body: &AddWatch{"/a", 1}}},
	{"whoAmI", "0000006b", Request{Op: OpWhoAmI}},
	{"closeSession", "fffffff5", Request{Op: OpCloseSession}},
	{"multi", "0000000e" +
		"00000001 00 ffffffff" + rawPath + rawData + rawOpen + "00000000" +
		"0000000f 00 ffffffff" + rawPath + "ffffffff" + rawOpen + "00000001" +
		"00000002 00 ffffffff" + rawPath + "00000002" +
		"00000005 00 ffffffff" + rawPath + "00000000 00000003" +
		"0000000d 00 ffffffff" + rawPath + "ffffffff" +
		"ffffffff 01 ffffffff",
		Request{Op: OpMulti, Body: &znode.Multi{Ops: []znode.Op{
			&znode.Create{Path: "/a", Data: goldenData, ACL: znode.OpenACL},
			&znode.Create{Path: "/a", ACL: znode.OpenACL, Mode: znode.Mode{Kind: znode.Ephemeral}, WantStat: true},
			&znode.Delete{Path: "/a", Version: 2},
			&znode.SetData{Path: "/a", Data: []byte{}, Version: 3},
			&znode.Check{Path: "/a", Version: -1},
		}}}},
	{"empty multi", "0000000e ffffffff 01 ffffffff", Request{Op: OpMulti, Body: &znode.Multi{}}},
	{"multiRead", "00000016 00000004 00 ffffffff" + rawPath + "00 00000008 00 ffffffff" + rawPath + "00 ffffffff 01 ffffffff",
		Request{Op: OpMultiRead, Body: &MultiRead{[]ReadOp{{OpGetData, "/a"}, {OpGetChildren, "/a"}}}}},
	{"with around get", "000003e8 00000001 0000000000000000 0000000000000000 00000004" + rawPath + "00",
		Request{Op: OpGetData, Stale: true, Body: &PathWatch{"/a", false}}},
	{"with around delete", "000003e8 00000000 0000000000000003 0000000000000002 00000002" + rawPath + "ffffffff",
		Request{Op: OpDelete, Seq: 3, Acked: 2, Body: &znode.Delete{Path: "/a", Version: -1}}},
	{"rewatch", "000003e9 0000000000000005 00000000 00000000 00000000 00000000 00000001" + rawPath,
		Request{Op: OpRewatch, Body: &SetWatches{RelZxid: 5, Data: []string{}, Exist: []string{}, Child: []string{},
			Persistent: []string{}, Recursive: []string{"/a"}}}},
	{"renew", "000003ea 00000001" + rawPath + "0000000000000009", Request{Op: OpRenew, Body: &Renew{[]Held{{"/a", 9}}}}},
	{"list", "000003eb" + rawPath + "00000001'b' 00000064 01", Request{Op: OpList, Body: &List{"/a", "b", 100, true}}},
	{"sessions", "000003ec 0000000000000009 00000064", Request{Op: OpSessions, Body: &Sessions{9, 100}}},
	{"status", "000003ed", Request{Op: OpStatus}},
	{"killSession", "000003ee 0000000000000009", Request{Op: OpKillSession, Body: &KillSession{9}}},
	{"members", "000003ef", Request{Op: OpMembers}},
	{"changeMembers", "000003f0 0000000000000009 00000002 00000001 00000004 00000003'h:1' 00000004 00000003 00000000",
		Request{Op: OpChangeMembers, Body: &ChangeMembers{9, []MemberStep{{MemberAdd, 4, "h:1"}, {MemberRemove, 3, ""}}}}},
	{"transferLead", "000003f1 00000002", Request{Op: OpTransferLead, Body: &TransferLead{2}}},
}

// Goal: requests are ZooKeeper's records to the byte, and so are Tenure's own.
// Method: bytes written by hand, decoded and encoded again.
func TestJuteRequestBytes(t *testing.T) {
	for _, g := range goldenRequests {
		msg, want := raw(t, rawHeader+g.bytes), g.want
		want.Xid = 7
		got, err := Jute{}.DecodeRequest(msg)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v %+v, %v\nwant %+v %+v", g.name, got, got.Body, err, want, want.Body)
		}
		if again := (Jute{}).AppendRequest(nil, &want); !bytes.Equal(again, msg) {
			t.Errorf("%s: encoded\n%x, want\n%x", g.name, again, msg)
		}
	}
}

// Goal: the handshake has ZooKeeper's 44 or 45 and 36 or 37 bytes.
// Method: bytes written by hand, in both directions; extra bytes and a foreign version.
func TestJuteConnectBytes(t *testing.T) {
	yes := true
	password := "00000010" + strings.Repeat("ab", 16)
	msg := raw(t, "00000000 0000000000000063 00002710 0000000000000009"+password)
	want := ConnectRequest{LastZxid: 99, TimeoutMs: 10000, Session: 9, Password: bytes.Repeat([]byte{0xab}, 16)}
	if len(msg) != 44 || !bytes.Equal(Jute{}.AppendConnect(nil, &want), msg) {
		t.Errorf("encoded %x, want %x", Jute{}.AppendConnect(nil, &want), msg)
	}
	foreign := append(raw(t, "00000007"), msg[4:]...)
	if got, err := (Jute{}).DecodeConnect(foreign); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("44 bytes: got %+v, %v", got, err)
	}
	want.ReadOnly = &yes
	if got, err := (Jute{}).DecodeConnect(append(msg, 2, 99, 99)); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("45 bytes and more: got %+v, %v", got, err)
	}
	for n := range 44 {
		if _, err := (Jute{}).DecodeConnect(msg[:n]); err == nil {
			t.Errorf("%d bytes were taken", n)
		}
	}
	reply := ConnectReply{TimeoutMs: 10000, Session: 9, Password: [16]byte(bytes.Repeat([]byte{0xab}, 16))}
	short := raw(t, "00000000 00002710 0000000000000009"+password)
	if got := (Jute{}).AppendConnectReply(nil, &reply); len(got) != 36 || !bytes.Equal(got, short) {
		t.Errorf("reply %x, want %x", got, short)
	}
	reply.ReadOnly = &yes
	if got := (Jute{}).AppendConnectReply(nil, &reply); len(got) != 37 || got[36] != 1 {
		t.Errorf("reply with flag %x", got)
	}
	refused := (Jute{}).AppendConnectReply(nil, &ConnectReply{})
	if want := raw(t, "00000000 00000000 0000000000000000 00000010"+strings.Repeat("00", 16)); !bytes.Equal(refused, want) {
		t.Errorf("refused %x, want %x", refused, want)
	}
}

var goldenReplies = []struct {
	name, bytes string
	reply       Reply
}{
	{"create", rawReply + rawPath, Reply{Op: OpCreate, Body: &znode.Result{Kind: znode.ResultCreate, Path: "/a"}}},
	{"create2", rawReply + rawPath + rawStat,
		Reply{Op: OpCreate2, Body: &znode.Result{Kind: znode.ResultCreateStat, Path: "/a", Stat: goldenStat}}},
	{"delete", rawReply, Reply{Op: OpDelete, Body: &znode.Result{Kind: znode.ResultDelete}}},
	{"exists", rawReply + rawStat, Reply{Op: OpExists, Body: &StatReply{goldenStat}}},
	{"getData", rawReply + rawData + rawStat, Reply{Op: OpGetData, Body: &DataReply{goldenData, goldenStat}}},
	{"getData of null", rawReply + "ffffffff" + rawStat, Reply{Op: OpGetData, Body: &DataReply{nil, goldenStat}}},
	{"setData", rawReply + rawStat, Reply{Op: OpSetData, Body: &znode.Result{Kind: znode.ResultSetData, Stat: goldenStat}}},
	{"getACL", rawReply + rawOpen + rawStat, Reply{Op: OpGetACL, Body: &ACLReply{znode.OpenACL, goldenStat}}},
	{"setACL", rawReply + rawStat, Reply{Op: OpSetACL, Body: &znode.Result{Kind: znode.ResultSetACL, Stat: goldenStat}}},
	{"getChildren", rawReply + "00000002 00000001'x' 00000000", Reply{Op: OpGetChildren, Body: &ChildrenReply{Names: []string{"x", ""}}}},
	{"getChildren2", rawReply + "00000001 00000001'x'" + rawStat, Reply{Op: OpGetChildren2, Body: &ChildrenReply{[]string{"x"}, goldenStat}}},
	{"sync", rawReply + rawPath, Reply{Op: OpSync, Body: &PathReply{"/a"}}},
	{"getAllChildrenNumber", rawReply + "00000005", Reply{Op: OpGetAllChildrenNumber, Body: &CountReply{5}}},
	{"getEphemerals", rawReply + "00000001" + rawPath, Reply{Op: OpGetEphemerals, Body: &PathsReply{[]string{"/a"}}}},
	{"whoAmI", rawReply + "00000001 00000002'ip' 00000001'x'", Reply{Op: OpWhoAmI, Body: &IdentitiesReply{[]znode.Identity{{Scheme: "ip", ID: "x"}}}}},
	{"sasl", rawReply + "ffffffff", Reply{Op: OpSASL, Body: &SASLReply{}}},
	{"auth", rawReply, Reply{Op: OpAuth}},
	{"addWatch", rawReply + "00000000", Reply{Op: OpAddWatch, Body: &AddWatchReply{}}},
	{"reconfig", rawReply + rawData + rawStat, Reply{Op: OpReconfig, Body: &DataReply{goldenData, goldenStat}}},
	{"error", "00000007 0000000000000063 ffffff9b", Reply{Op: OpGetData, Err: znode.NoNode}},
	{"multi", rawReply +
		"00000001 00 00000000" + rawPath + "0000000f 00 00000000" + rawPath + rawStat +
		"00000002 00 00000000" + "00000005 00 00000000" + rawStat + "0000000d 00 00000000" + "ffffffff 01 ffffffff",
		Reply{Op: OpMulti, Body: &znode.Result{Kind: znode.ResultMulti, Sub: []znode.Result{
			{Kind: znode.ResultCreate, Path: "/a"}, {Kind: znode.ResultCreateStat, Path: "/a", Stat: goldenStat},
			{Kind: znode.ResultDelete}, {Kind: znode.ResultSetData, Stat: goldenStat}, {Kind: znode.ResultCheck},
		}}}},
	{"failed multi has OK in its header", rawReply +
		"ffffffff 00 00000000 00000000" + "ffffffff 00 ffffff99 ffffff99" + "ffffffff 00 fffffffe fffffffe" + "ffffffff 01 ffffffff",
		Reply{Op: OpMulti, Body: &znode.Result{Kind: znode.ResultMulti, Err: znode.BadVersion, Sub: []znode.Result{
			{}, {Err: znode.BadVersion}, {Err: znode.RuntimeInconsistency},
		}}}},
	{"C055 multiRead goes on behind an error", rawReply +
		"00000004 00 00000000" + rawData + rawStat + "ffffffff 00 ffffff9b ffffff9b" +
		"00000008 00 00000000 00000001 00000001'x'" + "ffffffff 01 ffffffff",
		Reply{Op: OpMultiRead, Body: &MultiReadReply{[]ReadResult{
			{Op: OpGetData, Data: DataReply{goldenData, goldenStat}}, {Err: znode.NoNode},
			{Op: OpGetChildren, Children: ChildrenReply{Names: []string{"x"}}},
		}}}},
	{"rewatch", rawReply + "01", Reply{Op: OpRewatch, Body: &RewatchReply{true}}},
	{"renew", rawReply + "00002710 00000002 00000000 ffffff9b", Reply{Op: OpRenew, Body: &RenewReply{10000, []znode.Error{0, znode.NoNode}}}},
	{"list", rawReply + "00000004 00000001'e' 00000001'o' 00000001'p' 00000001't' 00000004" + rawStat + rawStat + rawStat + rawStat + "01" + rawStat +
		"00000004 00000001 0000000000000000 00000004 0000000000000000 00000000 0000000000000000 00000005 000000ffffffffff" + "00000004 0000000000000000",
		Reply{Op: OpList, Body: &ListReply{[]string{"e", "o", "p", "t"}, []znode.Stat{goldenStat, goldenStat, goldenStat, goldenStat}, true, goldenStat,
			[]znode.Lifetime{{Kind: znode.Ephemeral}, {Kind: znode.Container}, {}, {Kind: znode.TTL, TTLMs: 1<<40 - 1}},
			znode.Lifetime{Kind: znode.Container}}}},
	{"list of names only", rawReply + "00000001 00000001'x' 00000000 00" + rawStat + "00000000 00000005 0000000000000001",
		Reply{Op: OpList, Body: &ListReply{[]string{"x"}, []znode.Stat{}, false, goldenStat, []znode.Lifetime{}, znode.Lifetime{Kind: znode.TTL, TTLMs: 1}}}},
	{"sessions", rawReply + "00000001 0000000000000009 00002710 00000001'r' ffffffffffffffff 00000002 00000003 00",
		Reply{Op: OpSessions, Body: &SessionsReply{[]SessionInfo{{session.ID(9), 10000, "r", -1, 2, 3}}, false}}},
	{"status", rawReply + "00000001 00000001'n' 00000001'v'", Reply{Op: OpStatus, Body: &StatusReply{[]Figure{{"n", "v"}}}}},
	{"killSession", rawReply, Reply{Op: OpKillSession}},
	{"members", rawReply + "000000000000000c 00000001 01 00 0000000000000007 00000001 00000001 00000003'h:1' 01 01 0000000000000009 0000000000000000" +
		"00000001 00000002 00000003", Reply{Op: OpMembers, Body: &MembersReply{12, 1, true, false, 7, []MemberInfo{{1, "h:1", true, true, 9, 0}}, []int32{2}, 3}}},
	{"changeMembers refused", "00000007 0000000000000063 fffffff8 00000003'why'", Reply{Op: OpChangeMembers, Err: znode.BadArguments, Detail: "why"}},
}

// Goal: replies are ZooKeeper's records to the byte, and so are Tenure's own.
// Method: bytes written by hand, encoded and decoded again.
func TestJuteReplyBytes(t *testing.T) {
	for _, g := range goldenReplies {
		want := raw(t, g.bytes)
		p := g.reply
		p.Xid, p.Zxid = 7, 99
		if got := (Jute{}).AppendReply(nil, &p); !bytes.Equal(got, want) {
			t.Errorf("%s: encoded\n%x, want\n%x", g.name, got, want)
		}
		got, _, err := Jute{}.DecodeMessage(want, func(int32) (Op, bool) { return p.Op, true })
		if err != nil || !reflect.DeepEqual(got, &p) {
			t.Errorf("%s: got %+v %+v, %v", g.name, got, got.Body, err)
		}
	}
}
