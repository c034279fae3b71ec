package server

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/wire"
)

// Messages in these tests are hexadecimal digits, with white space anywhere; in replies
// two dots stand for any byte.

// hexStr is a ustring or a buffer.
func hexStr(s string) string { return hexInt(int32(len(s))) + hex.EncodeToString([]byte(s)) }

func hexInt(v int32) string { return fmt.Sprintf("%08x", uint32(v)) }

const (
	hexNull = "ffffffff"
	hexZero = "0000000000000000" // a long
	hexAny  = "................" // a long
	hexDone = "ffffffff 01 ffffffff"
)

// hexOpen is the vector of one access entry, world:anyone with all rights.
var hexOpen = "00000001 0000001f" + hexStr("world") + hexStr("anyone")

// hexStat is a Stat of which zxids and times are anything.
func hexStat(version, cversion, aversion, dataLength, numChildren int32) string {
	return strings.Repeat(hexAny, 4) + hexInt(version) + hexInt(cversion) + hexInt(aversion) + hexZero +
		hexInt(dataLength) + hexInt(numChildren) + hexAny
}

// hexItem is the header of an operation in a multi.
func hexItem(op wire.Op) string { return hexInt(int32(op)) + "00 ffffffff" }

// hexResult is the header of a result in a multi.
func hexResult(op wire.Op) string { return hexInt(int32(op)) + "00 00000000" }

// hexFailed is a result of a failed multi.
func hexFailed(e int32) string { return "ffffffff 00" + hexInt(e) + hexInt(e) }

// bytesOf are the bytes of a request in hexadecimal digits.
func bytesOf(t *testing.T, digits string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(digits), ""))
	if err != nil {
		t.Fatalf("%q: %v", digits, err)
	}
	return b
}

// matches reports whether b is what want describes.
func matches(b []byte, want string) bool {
	got := hex.EncodeToString(b)
	want = strings.Join(strings.Fields(want), "")
	if len(got) != len(want) {
		return false
	}
	for i := range want {
		if want[i] != '.' && want[i] != got[i] {
			return false
		}
	}
	return true
}

// Goal: each operation of ZooKeeper is answered with ZooKeeper's bytes. Method: one
// session's story, request by request, as bytes; xids are echoed, zxids grow, but those of
// logins are 0.
func TestZooKeeperBytesOfEveryOperation(t *testing.T) {
	s := startServer(t, Config{})
	r := openAs(t, s, zooKeeper, 30*time.Second)
	last := int64(0)
	for i, row := range zkStory() {
		xid := int32(1000 + i)
		r.write(bytesOf(t, hexInt(xid)+hexInt(int32(row.op))+row.request))
		got := r.read()
		if row.op == wire.OpPing {
			xid = -2
		}
		if !matches(got, hexInt(xid)+hexAny+row.reply) {
			t.Errorf("%s: answered %x, want %s", row.name, got, hexInt(xid)+hexAny+row.reply)
			continue
		}
		zxid := int64(0)
		fmt.Sscanf(hex.EncodeToString(got[4:12]), "%x", &zxid)
		switch login := row.op == wire.OpAuth || row.op == wire.OpSASL; {
		case login && zxid != 0:
			t.Errorf("%s: zxid %x, want 0", row.name, zxid)
		case !login && zxid < max(last, 1):
			t.Errorf("%s: zxid %x behind %x", row.name, zxid, last)
		case !login:
			last = zxid
		}
	}
	r.wantClosed("the close of the session", -1)
}

type zkExchange struct {
	name           string
	op             wire.Op
	request, reply string // behind xid and op, and behind xid and zxid
}

const hexOK = "00000000"

func zkStory() []zkExchange {
	a, data, any1 := hexStr("/a"), hexStr("xyz"), hexInt(-1)
	return append([]zkExchange{
		{"create", wire.OpCreate, a + data + hexOpen + hexInt(0), hexOK + a},
		{"create2 of null", wire.OpCreate2, hexStr("/a/b") + hexNull + hexOpen + hexInt(0), hexOK + hexStr("/a/b") + hexStat(0, 0, 0, 0, 0)},
		{"createContainer", wire.OpCreateContainer, hexStr("/a/c") + data + hexOpen + hexInt(4), hexOK + hexStr("/a/c") + hexStat(0, 0, 0, 3, 0)},
		{"createTTL", wire.OpCreateTTL, hexStr("/a/t") + data + hexOpen + hexInt(5) + "000000ffffffffff", hexOK + hexStr("/a/t") + hexStat(0, 0, 0, 3, 0)},
		{"sequential create", wire.OpCreate, hexStr("/a/s-") + data + hexOpen + hexInt(2), hexOK + hexStr("/a/s-0000000003")},
		{"a failed create has no body", wire.OpCreate2, a + data + hexOpen + hexInt(0), hexInt(-110)},
		{"exists", wire.OpExists, a + "00", hexOK + hexStat(0, 4, 0, 3, 4)},
		{"exists of nothing", wire.OpExists, hexStr("/none") + "00", hexInt(-101)},
		{"getData", wire.OpGetData, a + "00", hexOK + data + hexStat(0, 4, 0, 3, 4)},
		{"getData of null", wire.OpGetData, hexStr("/a/b") + "00", hexOK + hexNull + hexStat(0, 0, 0, 0, 0)},
		{"setData to empty", wire.OpSetData, hexStr("/a/b") + hexInt(0) + hexInt(0), hexOK + hexStat(1, 0, 0, 0, 0)},
		{"getData of empty", wire.OpGetData, hexStr("/a/b") + "00", hexOK + hexInt(0) + hexStat(1, 0, 0, 0, 0)},
		{"setData at another version", wire.OpSetData, hexStr("/a/b") + data + hexInt(7), hexInt(-103)},
		{"getACL", wire.OpGetACL, a, hexOK + hexOpen + hexStat(0, 4, 0, 3, 4)},
		{"setACL", wire.OpSetACL, a + hexOpen + hexInt(0), hexOK + hexStat(0, 4, 1, 3, 4)},
		{"delete", wire.OpDelete, hexStr("/a/t") + any1, hexOK},
		{"delete of a parent", wire.OpDelete, a + any1, hexInt(-111)},
		{"getChildren", wire.OpGetChildren, hexStr("/zookeeper/quota") + "00", hexOK + hexInt(0)},
		{"getChildren2", wire.OpGetChildren2, hexStr("/a/c") + "00", hexOK + hexInt(0) + hexStat(0, 0, 0, 3, 0)},
		{"sync of nothing echoes its path", wire.OpSync, hexStr("/none"), hexOK + hexStr("/none")},
		{"ping", wire.OpPing, "", hexOK},
		{"getAllChildrenNumber", wire.OpGetAllChildrenNumber, a, hexOK + hexInt(3)},
		{"getAllChildrenNumber of the root", wire.OpGetAllChildrenNumber, hexStr("/"), hexOK + hexInt(7)},
		{"ephemeral create", wire.OpCreate, hexStr("/a/e") + hexInt(0) + hexOpen + hexInt(1), hexOK + hexStr("/a/e")},
		{"getEphemerals", wire.OpGetEphemerals, hexStr("/"), hexOK + hexInt(1) + hexStr("/a/e")},
		{"getEphemerals of a null prefix", wire.OpGetEphemerals, hexNull, hexOK + hexInt(1) + hexStr("/a/e")},
		{"getEphemerals by part of a name", wire.OpGetEphemerals, hexStr("/a/"), hexOK + hexInt(1) + hexStr("/a/e")},
		{"getEphemerals elsewhere", wire.OpGetEphemerals, hexStr("/b"), hexOK + hexInt(0)},
	}, append(zkStoryOfMany(), zkStoryOfSessions()...)...)
}

// zkStoryOfMany goes on with multi and multiRead.
func zkStoryOfMany() []zkExchange {
	a, open := hexStr("/a"), hexOpen+hexInt(0)
	create := func(op wire.Op, path, flags string) string {
		return hexItem(op) + hexStr(path) + hexStr("x") + hexOpen + flags
	}
	return []zkExchange{
		{"empty multi", wire.OpMulti, hexDone, hexOK + hexDone},
		{"multi", wire.OpMulti, create(wire.OpCreate, "/m", hexInt(0)) + create(wire.OpCreateContainer, "/m/c", hexInt(4)) +
			create(wire.OpCreateTTL, "/m/t", hexInt(5)+"0000000000001000") + create(wire.OpCreate, "/m/s-", hexInt(2)) +
			hexItem(wire.OpSetData) + hexStr("/m") + hexStr("xy") + hexInt(0) + hexItem(wire.OpSetData) + hexStr("/m") + hexNull + hexInt(1) +
			hexItem(wire.OpCheck) + hexStr("/m") + hexInt(2) + hexItem(wire.OpDelete) + hexStr("/m/c") + hexInt(-1) + hexDone,
			hexOK + hexResult(wire.OpCreate) + hexStr("/m") + hexResult(wire.OpCreate2) + hexStr("/m/c") + hexStat(0, 0, 0, 1, 0) +
				hexResult(wire.OpCreate2) + hexStr("/m/t") + hexStat(0, 0, 0, 1, 0) + hexResult(wire.OpCreate) + hexStr("/m/s-0000000002") +
				hexResult(wire.OpSetData) + hexStat(1, 3, 0, 2, 3) + hexResult(wire.OpSetData) + hexStat(2, 3, 0, 0, 3) +
				hexResult(wire.OpCheck) + hexResult(wire.OpDelete) + hexDone},
		{"create2 in a multi", wire.OpMulti, create(wire.OpCreate2, "/m/2", hexInt(0)) + hexDone,
			hexOK + hexResult(wire.OpCreate2) + hexStr("/m/2") + hexStat(0, 0, 0, 1, 0) + hexDone},
		{"failed multi", wire.OpMulti, create(wire.OpCreate, "/no", hexInt(0)) + hexItem(wire.OpCheck) + a + hexInt(9) +
			hexItem(wire.OpDelete) + hexStr("/none") + hexInt(-1) + hexDone, hexOK + hexFailed(0) + hexFailed(-103) + hexFailed(-2) + hexDone},
		{"a read in a multi", wire.OpMulti, hexItem(wire.OpGetData) + a + "00" + hexDone, hexInt(-5)},
		{"setACL in a multi", wire.OpMulti, hexItem(wire.OpSetACL) + a + open + hexDone, hexInt(-5)},
		{"an unknown operation in a multi", wire.OpMulti, hexItem(77) + a + hexDone, hexInt(-5)},
		{"multiRead", wire.OpMultiRead, hexItem(wire.OpGetData) + a + "01" + hexItem(wire.OpGetData) + hexStr("/none") + "00" +
			hexItem(wire.OpGetChildren) + hexStr("/a/c") + "01" + hexDone,
			hexOK + hexResult(wire.OpGetData) + hexStr("xyz") + hexStat(0, 6, 1, 3, 4) + hexFailed(-101) +
				hexResult(wire.OpGetChildren) + hexInt(0) + hexDone},
		{"its watches were not set", wire.OpSetData, a + hexNull + hexInt(0), hexOK + hexStat(1, 6, 1, 0, 4)},
		{"a write in multiRead", wire.OpMultiRead, hexItem(wire.OpDelete) + a + hexInt(-1) + hexDone, hexInt(-5)},
	}
}

// zkStoryOfSessions ends with what concerns watches, identities and the session.
func zkStoryOfSessions() []zkExchange {
	a, none := hexStr("/a"), hexZero+hexInt(0)+hexInt(0)+hexInt(0)
	return []zkExchange{
		{"checkWatches without any", wire.OpCheckWatches, a + hexInt(3), hexInt(-121)},
		{"removeWatches without any", wire.OpRemoveWatches, a + hexInt(3), hexInt(-121)},
		{"addWatch", wire.OpAddWatch, a + hexInt(1), hexOK + hexOK},
		{"addWatch judges no path", wire.OpAddWatch, hexStr("x//") + hexInt(0), hexOK + hexOK},
		{"addWatch of no mode", wire.OpAddWatch, a + hexInt(2), hexInt(-5)},
		{"checkWatches", wire.OpCheckWatches, a + hexInt(3), hexOK},
		{"removeWatches", wire.OpRemoveWatches, a + hexInt(3), hexOK},
		{"removeWatches again", wire.OpRemoveWatches, a + hexInt(3), hexInt(-121)},
		{"removeWatches of no type", wire.OpRemoveWatches, a + hexInt(0), hexInt(-5)},
		{"checkWatches of no type", wire.OpCheckWatches, a + hexInt(6), hexInt(-5)},
		{"setWatches", wire.OpSetWatches, none, hexOK},
		{"setWatches of null", wire.OpSetWatches, hexZero + hexNull + hexInt(0) + hexInt(0), hexInt(-5)},
		{"setWatches2", wire.OpSetWatches2, none + hexInt(0) + hexInt(0), hexOK},
		{"whoAmI", wire.OpWhoAmI, "", hexOK + hexInt(1) + hexStr("ip") + hexStr("127.0.0.1")},
		{"auth", wire.OpAuth, hexInt(0) + hexStr("digest") + hexStr("user:pw"), hexOK},
		{"auth again", wire.OpAuth, hexInt(0) + hexStr("digest") + hexStr("user:pw"), hexOK},
		{"whoAmI with a login", wire.OpWhoAmI, "", hexOK + hexInt(2) + hexStr("ip") + hexStr("127.0.0.1") + hexStr("digest") + hexStr("user")},
		{"sasl without SASL", wire.OpSASL, hexInt(0), hexOK + hexNull},
		{"reconfig while it is off", wire.OpReconfig, hexNull + hexNull + hexNull + hexZero, hexInt(-123)},
		{"bytes behind the record", wire.OpExists, hexStr("/none") + "00 deadbeef", hexInt(-101)},
		{"a boolean of 2", wire.OpExists, hexStr("/none") + "02", hexInt(-101)},
		{"closeSession", wire.OpCloseSession, "", hexOK},
	}
}
