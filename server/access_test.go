package server

import (
	"fmt"
	"testing"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// accessCase is one operation on the znode dir/n and what it needs.
type accessCase struct {
	// perms are the bits each of which is enough, 0 if no list is asked.
	perms int32
	// onParent: the list of dir is asked, not that of dir/n.
	onParent bool
	request  func(dir string) wire.Request
	// want is the answer to who has the permission, OK unless set.
	want znode.Error
}

// do makes a case of an operation with a fixed record.
func do(op wire.Op, body any) accessCase {
	return accessCase{request: func(string) wire.Request { return wire.Request{Op: op, Body: body} }}
}

// reading makes a case of a read of dir/n.
func reading(perms int32, op wire.Op, body func(path string) any) accessCase {
	return accessCase{perms: perms, request: func(dir string) wire.Request {
		return wire.Request{Op: op, Body: body(dir + "/n")}
	}}
}

// writing makes a case of a write, alone or as the part of a multi.
func writing(perms int32, onParent bool, op wire.Op, body func(dir string) znode.Op) accessCase {
	return accessCase{perms: perms, onParent: onParent, request: func(dir string) wire.Request {
		if op == wire.OpMulti {
			return wire.Request{Op: op, Body: &znode.Multi{Ops: []znode.Op{body(dir)}}}
		}
		return wire.Request{Op: op, Body: body(dir)}
	}}
}

func pathWatch(path string) any { return &wire.PathWatch{Path: path, Watch: true} }
func pathOnly(path string) any  { return &wire.PathOnly{Path: path} }

// creating makes the create of dir/new.
func creating(m znode.Mode, ttl int64, stat bool) func(string) znode.Op {
	return func(dir string) znode.Op {
		return &znode.Create{Path: dir + "/new", ACL: znode.OpenACL, Mode: m, TTLMs: ttl, WantStat: stat}
	}
}

func deleting(dir string) znode.Op    { return &znode.Delete{Path: dir + "/n", Version: -1} }
func overwriting(dir string) znode.Op { return &znode.SetData{Path: dir + "/n", Version: -1} }
func checking(dir string) znode.Op    { return &znode.Check{Path: dir + "/n", Version: -1} }
func opening(dir string) znode.Op {
	return &znode.SetACL{Path: dir + "/n", ACL: znode.OpenACL, Version: -1}
}

// accessCases are what each operation needs, by ZooKeeper's documentation and not by the
// table under test.
func accessCases() map[wire.Op][]accessCase {
	none := &wire.SetWatches{}
	noWatcher := do(wire.OpCheckWatches, &wire.RemoveWatches{Path: "/x", Type: wire.WatcherAny})
	noRemoval := do(wire.OpRemoveWatches, &wire.RemoveWatches{Path: "/x", Type: wire.WatcherAny})
	reconfig := do(wire.OpReconfig, &wire.Reconfig{})
	noWatcher.want, noRemoval.want, reconfig.want = znode.NoWatcher, znode.NoWatcher, znode.ReconfigDisabled
	stale := reading(znode.PermRead, wire.OpGetData, pathWatch)
	plain := stale.request
	stale.request = func(dir string) wire.Request { q := plain(dir); q.Stale = true; return q }
	readMany := func(op wire.Op) accessCase {
		return reading(znode.PermRead, wire.OpMultiRead, func(path string) any {
			return &wire.MultiRead{Ops: []wire.ReadOp{{Op: op, Path: path}}}
		})
	}
	create := creating(persistent, 0, false)
	return map[wire.Op][]accessCase{
		wire.OpCreate:          {writing(znode.PermCreate, true, wire.OpCreate, create)},
		wire.OpCreate2:         {writing(znode.PermCreate, true, wire.OpCreate2, creating(ephemeral, 0, true))},
		wire.OpCreateContainer: {writing(znode.PermCreate, true, wire.OpCreateContainer, creating(container, 0, true))},
		wire.OpCreateTTL:       {writing(znode.PermCreate, true, wire.OpCreateTTL, creating(znode.Mode{Kind: znode.TTL}, 60_000, true))},
		wire.OpDelete:          {writing(znode.PermDelete, true, wire.OpDelete, deleting)},
		wire.OpSetData:         {writing(znode.PermWrite, false, wire.OpSetData, overwriting)},
		wire.OpSetACL:          {writing(znode.PermAdmin, false, wire.OpSetACL, opening)},
		wire.OpCheck:           {writing(znode.PermRead, false, wire.OpMulti, checking)},
		wire.OpMulti: {
			writing(znode.PermCreate, true, wire.OpMulti, create), writing(znode.PermDelete, true, wire.OpMulti, deleting),
			writing(znode.PermWrite, false, wire.OpMulti, overwriting), do(wire.OpMulti, &znode.Multi{}),
		},
		wire.OpMultiRead:    {readMany(wire.OpGetData), readMany(wire.OpGetChildren)},
		wire.OpExists:       {reading(znode.PermRead, wire.OpExists, pathWatch)},
		wire.OpGetData:      {reading(znode.PermRead, wire.OpGetData, pathWatch)},
		wire.OpWith:         {stale},
		wire.OpGetChildren:  {reading(znode.PermRead, wire.OpGetChildren, pathWatch)},
		wire.OpGetChildren2: {reading(znode.PermRead, wire.OpGetChildren2, pathWatch)},
		wire.OpGetAllChildrenNumber: {
			reading(znode.PermRead, wire.OpGetAllChildrenNumber, pathOnly)},
		wire.OpList: {reading(znode.PermRead, wire.OpList, func(path string) any { return &wire.List{Path: path, Stats: true} })},
		wire.OpGetACL: {
			reading(znode.PermRead|znode.PermAdmin, wire.OpGetACL, pathOnly)},
		wire.OpGetEphemerals: {do(wire.OpGetEphemerals, &wire.PathOnly{})},
		wire.OpSync:          {do(wire.OpSync, &wire.PathOnly{Path: "/shut"})},
		wire.OpAddWatch:      {do(wire.OpAddWatch, &wire.AddWatch{Path: "/shut"})},
		wire.OpSetWatches:    {do(wire.OpSetWatches, none)}, wire.OpSetWatches2: {do(wire.OpSetWatches2, none)}, wire.OpRewatch: {do(wire.OpRewatch, none)},
		wire.OpCheckWatches: {noWatcher}, wire.OpRemoveWatches: {noRemoval}, wire.OpReconfig: {reconfig},
		wire.OpAuth: {do(wire.OpAuth, &wire.Auth{Scheme: "digest", Data: []byte("a:b")})}, wire.OpSASL: {do(wire.OpSASL, &wire.SASL{})},
		wire.OpPing: {do(wire.OpPing, nil)}, wire.OpWhoAmI: {do(wire.OpWhoAmI, nil)}, wire.OpCloseSession: {do(wire.OpCloseSession, nil)},
		wire.OpRenew: {do(wire.OpRenew, &wire.Renew{Held: []wire.Held{{Path: "/shut"}}})}, wire.OpStatus: {do(wire.OpStatus, nil)},
		wire.OpSessions:        {do(wire.OpSessions, &wire.Sessions{})},
		wire.OpMembers:         {do(wire.OpMembers, nil)},
		wire.OpKillSession:     nil, // TestC065LoginAndKill
		wire.OpChangeMembers:   nil, // TestMembersOverTheProtocol
		wire.OpTransferLead:    nil, // TestMembersOverTheProtocol
		wire.OpDeleteContainer: nil, // TestServersOwnOperationIsRefused
	}
}

// outcome is the error of a reply, or of the one part of a multi.
func outcome(reply *wire.Reply) znode.Error {
	switch body := reply.Body.(type) {
	case *znode.Result:
		for i := range body.Sub {
			return body.Sub[i].Err
		}
	case *wire.MultiReadReply:
		return body.Results[0].Err
	}
	return reply.Err
}

// shut grants nobody anything.
var shut = znode.ACL{Perms: 0, Scheme: "world", ID: "anyone"}

// Goal: every operation needs the permission that ZooKeeper's documentation names, on the
// znode that it names, and that is enough. Method: each by a client that has this one
// permission and nothing else anywhere, and by one that has all others; what asks for
// none by a client with none; through both doors. An operation without a case fails.
func TestEveryOperationAsksForItsPermission(t *testing.T) {
	s := startServer(t, Config{SuperDigest: Secret(znode.DigestID("super", "top"))})
	admin := adminOf(t, s)
	if e := admin.createACL("/shut", shut); e != znode.OK {
		t.Fatal(e)
	}
	cases := accessCases()
	for op := wire.Op(-20); op < 2000; op++ {
		list, ok := cases[op]
		if hasRow := wire.AccessOf(op) != znode.AccessDenied; ok != hasRow {
			t.Errorf("%v: in the table %v, among the cases %v", op, hasRow, ok)
		}
		for i, c := range list {
			name := fmt.Sprintf("%v-%d", op, i)
			for _, door := range []string{subprotocolJute, zooKeeper} {
				if door == zooKeeper && op >= wire.OpWith {
					continue // unknown there
				}
				if c.perms == 0 {
					if got := outcome(openAs(t, s, door, 0).call(c.request("/shut"))); got != c.want {
						t.Errorf("%s: %s by anybody: %v, want %v", door, name, got, c.want)
					}
				}
				for bit := int32(1); bit <= znode.PermAdmin; bit *= 2 {
					if c.perms&bit != 0 {
						c.drive(t, s, door, admin, fmt.Sprintf("/%s-%s-%d", door, name, bit), bit)
					}
				}
			}
		}
	}
}

// drive sends the request as one, who has bit where it is asked for, and as rest, who has
// all that is not enough.
func (c *accessCase) drive(t *testing.T, s *Server, door string, admin *rawClient, dir string, bit int32) {
	asked := []znode.ACL{digest(bit, "one", "1"), digest(znode.PermAll&^c.perms, "rest", "2")}
	other := []znode.ACL{digest(znode.PermAll, "rest", "2")}
	parent, node := other, asked
	if c.onParent {
		parent, node = asked, other
	}
	for _, made := range []znode.Error{admin.createACL(dir, parent...), admin.createACL(dir+"/n", node...)} {
		if made != znode.OK {
			t.Fatalf("%s: %v", dir, made)
		}
	}
	one, rest := openAs(t, s, door, 0), openAs(t, s, door, 0)
	one.auth("digest", "one:1")
	rest.auth("digest", "rest:2")
	if got := outcome(rest.call(c.request(dir))); got != znode.NoAuth {
		t.Errorf("%s without the permission: %v, want NoAuth", dir, got)
	}
	if got := outcome(one.call(c.request(dir))); got != znode.OK {
		t.Errorf("%s with the permission alone: %v", dir, got)
	}
}

// Goal: what only the server may ask for is unknown to clients, super or not. Method: the
// one such operation that has a number on the wire.
func TestServersOwnOperationIsRefused(t *testing.T) {
	s := startServer(t, Config{})
	r := adminOf(t, s)
	r.sent[99] = wire.OpDeleteContainer
	r.write(rawStr(rawInt(rawInt(nil, 99), int32(wire.OpDeleteContainer)), "/zookeeper"))
	if reply := r.next(); reply.Err != znode.Unimplemented || reply.Zxid != -1 {
		t.Errorf("answered %v at zxid %d", reply.Err, reply.Zxid)
	}
	r.wantClosed("an unknown operation", closeBadRequest)
}
