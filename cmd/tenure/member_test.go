package main

import (
	"bufio"
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/wire"
)

// Goal: wrong member commands are refused before anything is sent. Method: one line per rule.
func TestMemberUsage(t *testing.T) {
	for line, want := range map[string]string{
		"member x":                       `unknown command "x"`,
		"member add":                     "needs --peer HOST:PORT",
		"member add --peer h:1 x":        "got 1",
		"member add --peer h:1 --id 256": `"256": want a member's id from 1 to 255`,
		"member promote":                 "got 0",
		"member promote x":               `"x": want a member's id`,
		"member remove 0":                `"0": want a member's id`,
		"member demote -- -1":            `"-1": want a member's id`,
		"member move 1":                  "needs --peer HOST:PORT",
		"member transfer 1 2":            "got 2",
		"member list x":                  "got 1",
		"member list --endpoint zk://h":  "ZooKeeper has no such operation",
	} {
		if code, _, stderr := testRun(t, strings.Fields(line)...); code != exitUsage || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit %d, %s; want %q", line, code, stderr, want)
		}
	}
}

// Goal: the list says what is known and no more.
// Method: a reply of a leader, and one of a member that knows of none.
func TestMembersPrinted(t *testing.T) {
	m := wire.MembersReply{Cluster: -1, Leader: 2, Current: true, Changing: true, Removed: []int32{7}, Members: []wire.MemberInfo{
		{ID: 2, Address: "b:1", Voter: true, Answering: true}, {ID: 3, Address: "c:1", Voter: true, Lag: 12}, {ID: 5, Address: "d:1", Answering: true, Lag: 120000}}}
	printed := func(output string) string {
		var out bytes.Buffer
		a := &app{out: bufio.NewWriter(&out), output: output}
		if err := errors.Join(a.printMembers(&m), a.out.Flush()); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	want := `ID   ROLE      ANSWERING       LAG ADDRESS
2    leader    yes               0 b:1
3    follower  no               12 c:1
5    learner   yes          120000 d:1
a change of the members is under way
`
	if got := printed(outputTable); got != want {
		t.Errorf("printed\n%swant\n%s", got, want)
	}
	if got, want := startCommand(&m, 5), "tenured --data-dir DIR --member-id 5 --join --cluster-id ffffffffffffffff --peer-listen d:1 --initial-members 2=b:1,3=c:1"; got != want {
		t.Errorf("started by\n%s\nwant\n%s", got, want)
	}
	m.Current, m.Leader, m.Changing = false, 0, false
	if got := printed(outputTable); strings.Contains(got, "yes") || !strings.Contains(got, "there is no leader") {
		t.Errorf("without a leader:\n%s", got)
	}
	if got := printed(outputJSON); strings.Contains(got, "answering") || !strings.Contains(got, `"cluster":"ffffffffffffffff"`) {
		t.Errorf("JSON:\n%s", got)
	}
}
