package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// members asks for the list.
func (r *rawClient) members() *wire.MembersReply {
	r.t.Helper()
	reply := r.call(wire.Request{Op: wire.OpMembers})
	m, ok := reply.Body.(*wire.MembersReply)
	if !ok {
		r.t.Fatalf("members: %v %s", reply.Err, reply.Detail)
	}
	return m
}

// changeMembers asks for a change.
func (r *rawClient) changeMembers(steps ...wire.MemberStep) *wire.Reply {
	r.t.Helper()
	return r.call(wire.Request{Op: wire.OpChangeMembers, Body: &wire.ChangeMembers{Steps: steps}})
}

// describeMembers writes members down: id, role, whether it answers.
func describeMembers(m *wire.MembersReply) string {
	var out []string
	for _, e := range m.Members {
		role := "learner"
		switch {
		case e.ID == m.Leader:
			role = "leader"
		case e.Voter:
			role = "follower"
		}
		if !e.Answering {
			role += "?"
		}
		out = append(out, fmt.Sprintf("%d %s", e.ID, role))
	}
	return strings.Join(out, ", ")
}

// Goal: members are listed for everybody and changed by administrators only, through any
// member and in both encodings, in the order of the connection's requests; a refusal says
// why. Method: three members; each step asked of one that does not lead.
func TestMembersOverTheProtocol(t *testing.T) {
	t.Parallel()
	list := startMembers(t, memberConfigs(t, 3))
	leader := leaderOf(list)
	others := slices.DeleteFunc(slices.Clone(list), func(s *Server) bool { return s == leader })
	first, second := int32(others[0].cfg.MemberID), int32(others[1].cfg.MemberID)
	for _, protocol := range protocols {
		r := openAs(t, others[0], protocol, 10*time.Second)
		m := r.members()
		if len(m.Members) != 3 || !m.Current || m.Leader != int32(leader.cfg.MemberID) || m.Cluster != int64(leader.rep.Cluster()) ||
			strings.Contains(describeMembers(m), "?") || m.Members[0].Address != list[0].cfg.PeerListen {
			t.Errorf("%s: %+v", protocol, m)
		}
		if e := r.changeMembers(wire.MemberStep{Kind: wire.MemberDemote, ID: second}).Err; e != znode.NoAuth {
			t.Errorf("%s: a change without permission: %v", protocol, e)
		}
		if e := r.call(wire.Request{Op: wire.OpTransferLead, Body: &wire.TransferLead{}}).Err; e != znode.NoAuth {
			t.Errorf("%s: a transfer without permission: %v", protocol, e)
		}
		if e := r.auth("token", adminTokenOf(t, others[0])); e != znode.OK {
			t.Fatal(e)
		}
		for _, row := range []struct {
			step wire.MemberStep
			code znode.Error
			want string
		}{
			{wire.MemberStep{Kind: wire.MemberAdd, ID: 9, Address: "nowhere"}, znode.BadArguments, "the address nowhere must be HOST:PORT"},
			{wire.MemberStep{Kind: wire.MemberAdd, ID: first, Address: "h:1"}, znode.BadArguments, "is in use"},
			{wire.MemberStep{Kind: wire.MemberRemove, ID: -1}, znode.BadArguments, "want an id from 1 to 255"},
			{wire.MemberStep{Kind: wire.MemberPromote, ID: first}, znode.BadArguments, "has a vote already"},
		} {
			if reply := r.changeMembers(row.step); reply.Err != row.code || !strings.Contains(reply.Detail, row.want) {
				t.Errorf("%s: %+v: %v %q, want %v %q", protocol, row.step, reply.Err, reply.Detail, row.code, row.want)
			}
		}
		// Behind the change comes what was sent behind it.
		r.send(wire.Request{Op: wire.OpChangeMembers, Body: &wire.ChangeMembers{Steps: []wire.MemberStep{{Kind: wire.MemberDemote, ID: second}}}})
		r.send(wire.Request{Op: wire.OpMembers})
		if e := r.next(); e.Err != znode.OK {
			t.Errorf("%s: demote: %v %s", protocol, e.Err, e.Detail)
		}
		if m := r.next().Body.(*wire.MembersReply); !slices.ContainsFunc(m.Members, func(e wire.MemberInfo) bool { return e.ID == second && !e.Voter }) {
			t.Errorf("%s: %s", protocol, describeMembers(m))
		}
		if e := r.changeMembers(wire.MemberStep{Kind: wire.MemberPromote, ID: second}); e.Err != znode.OK {
			t.Errorf("%s: promote: %v %s", protocol, e.Err, e.Detail)
		}
	}
	r := adminOf(t, others[0])
	if m := r.members(); m.Free != 4 {
		t.Errorf("the next free id is %d", m.Free)
	}
	if reply := r.call(wire.Request{Op: wire.OpTransferLead, Body: &wire.TransferLead{ID: -3}}); reply.Err != znode.BadArguments || !strings.Contains(reply.Detail, "member -3") {
		t.Errorf("transfer to member -3: %v %s", reply.Err, reply.Detail)
	}
	if reply := r.call(wire.Request{Op: wire.OpTransferLead, Body: &wire.TransferLead{ID: first}}); reply.Err != znode.OK ||
		reply.Body.(*wire.MembersReply).Leader != first {
		t.Errorf("transfer: %v %s", reply.Err, reply.Detail)
	}
	r.must("/after", "", persistent)
}

// Goal: a member that is removed, through itself, sends its clients away, says so, serves
// nobody more, and the rest goes on. Method: remove one of three.
func TestRemovedMemberServesNobody(t *testing.T) {
	t.Parallel()
	list := startMembers(t, memberConfigs(t, 3))
	gone := list[2]
	if gone == leaderOf(list) {
		gone = list[1]
	}
	stays := leaderOf(list)
	r := adminOf(t, gone)
	r.send(wire.Request{Op: wire.OpChangeMembers, Body: &wire.ChangeMembers{Steps: []wire.MemberStep{{Kind: wire.MemberRemove, ID: int32(gone.cfg.MemberID)}}}})
	r.wantClosed("its clients", closeTryAgain)
	waitFor(t, "it says so", ensembleDeadline, func() bool { return gone.ready() == errRemoved })
	resp, err := http.Get("http://" + gone.Addr().String() + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable || gone.Err() != nil {
		t.Errorf("readyz %d, error %v", resp.StatusCode, gone.Err())
	}
	left := adminOf(t, stays)
	if m := left.members(); len(m.Members) != 2 || !slices.Equal(m.Removed, []int32{int32(gone.cfg.MemberID)}) {
		t.Errorf("members %+v", m)
	}
	left.must("/after", "", persistent)
}

// Goal: C117 with real connections: a member under an address where nobody listens is a
// learner that does not answer, writes go on, and it can be removed. Method: a member that
// is alone adds it.
func TestC117WrongAddress(t *testing.T) {
	t.Parallel()
	addresses := freeAddresses(t, 2)
	s := startServer(t, Config{PeerListen: addresses[0], ElectionTimeout: 300 * time.Millisecond})
	waitServing(t, s)
	r := adminOf(t, s)
	if reply := r.changeMembers(wire.MemberStep{Kind: wire.MemberAdd, ID: 2, Address: addresses[1]}); reply.Err != znode.OK {
		t.Fatalf("add: %v %s", reply.Err, reply.Detail)
	}
	for i := range 20 {
		r.must(fmt.Sprintf("/n%d", i), "", persistent)
	}
	if m := r.members(); describeMembers(m) != "1 leader, 2 learner?" || m.Members[1].Lag == 0 {
		t.Errorf("members %+v", m)
	}
	if reply := r.changeMembers(wire.MemberStep{Kind: wire.MemberPromote, ID: 2}); reply.Err != znode.NewConfigNoQuorum || !strings.Contains(reply.Detail, "does not answer") {
		t.Errorf("promote: %v %q", reply.Err, reply.Detail)
	}
	if reply := r.changeMembers(wire.MemberStep{Kind: wire.MemberRemove, ID: 2}); reply.Err != znode.OK {
		t.Errorf("remove: %v %s", reply.Err, reply.Detail)
	}
	if m := r.members(); describeMembers(m) != "1 leader" || !slices.Equal(m.Removed, []int32{2}) {
		t.Errorf("members %+v", m)
	}
	// Alone without an address for others it can have none.
	alone := startServer(t, Config{})
	if reply := adminOf(t, alone).changeMembers(wire.MemberStep{Kind: wire.MemberAdd, ID: 2, Address: addresses[1]}); reply.Err != znode.BadArguments ||
		!strings.Contains(reply.Detail, "does not listen for others") {
		t.Errorf("add without peer-listen: %v %q", reply.Err, reply.Detail)
	}
}
