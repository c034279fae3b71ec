package wire

import "fmt"

// ChangeMembers is the record of OpChangeMembers: steps that take effect together.
type ChangeMembers struct {
	// Number, drawn at random by the client, makes a change that is asked for again,
	// because its answer was lost, the same one. 0 is none.
	Number int64
	Steps  []MemberStep
}

// MemberStep is one step of ChangeMembers.
type MemberStep struct {
	Kind    MemberStepKind
	ID      int32
	Address string // of MemberAdd and MemberMove: HOST:PORT where the member listens for the others
}

// MemberStepKind is what a MemberStep does.
type MemberStepKind int32

// The kinds of step.
const (
	MemberAdd     MemberStepKind = 1 // a learner, under an id that was never used
	MemberPromote MemberStepKind = 2 // gives a learner a vote
	MemberDemote  MemberStepKind = 3 // makes a voter a learner
	MemberRemove  MemberStepKind = 4
	MemberMove    MemberStepKind = 5 // to another address
)

var memberStepNames = map[MemberStepKind]string{
	MemberAdd: "add", MemberPromote: "promote", MemberDemote: "demote", MemberRemove: "remove", MemberMove: "move",
}

var memberSteps = inverse(memberStepNames)

// String returns the kind's name in JSON.
func (k MemberStepKind) String() string {
	if name, ok := memberStepNames[k]; ok {
		return name
	}
	return fmt.Sprintf("step %d", int32(k))
}

// TransferLead is the record of OpTransferLead: to whom, 0 = whoever is fit best.
type TransferLead struct{ ID int32 }

// MembersReply answers OpMembers, OpChangeMembers and OpTransferLead.
type MembersReply struct {
	Cluster int64 // the id of the ensemble, 64 bits
	Leader  int32 // 0 if unknown
	// Current: the leader said so. Else it is what the member asked knows, and Answering,
	// Match and Lag are unknown.
	Current bool
	// Changing: a change is under way. Index is the log's entry of the last one.
	Changing bool
	Index    int64
	Members  []MemberInfo // by id
	Removed  []int32      // ids that are used up
	Free     int32        // the lowest id that no member ever had, 0 if there is none
}

// MemberInfo describes one member.
type MemberInfo struct {
	ID        int32
	Address   string // where it listens for the others
	Voter     bool   // otherwise a learner
	Answering bool   // the leader heard of it within an election timeout
	Match     int64  // the last entry that it has on disk
	Lag       int64  // entries of the leader's log that it lacks
}

// hasDetail reports whether an error in a reply to op carries Detail in jute, too: not of
// ZooKeeper's operations, whose records have no room for it.
func hasDetail(op Op) bool { return op == OpChangeMembers || op == OpTransferLead }

func (r *juteReader) changeMembers() *ChangeMembers {
	v := &ChangeMembers{Number: r.long()}
	v.Steps = make([]MemberStep, max(r.count(12), 0))
	for i := range v.Steps {
		s := MemberStep{Kind: MemberStepKind(r.int()), ID: r.int(), Address: r.str()}
		if s.Kind < MemberAdd || s.Kind > MemberMove {
			r.fail("unknown kind of step", int64(s.Kind))
		}
		v.Steps[i] = s
	}
	return v
}

func putChangeMembers(dst []byte, c *ChangeMembers) []byte {
	dst = putInt(putLong(dst, c.Number), int32(len(c.Steps)))
	for _, s := range c.Steps {
		dst = putStr(putInt(putInt(dst, int32(s.Kind)), s.ID), s.Address)
	}
	return dst
}

func (r *juteReader) membersReply() *MembersReply {
	b := &MembersReply{Cluster: r.long(), Leader: r.int(), Current: r.bool(), Changing: r.bool(), Index: r.long()}
	b.Members = make([]MemberInfo, max(r.count(26), 0))
	for i := range b.Members {
		b.Members[i] = MemberInfo{ID: r.int(), Address: r.str(), Voter: r.bool(), Answering: r.bool(), Match: r.long(), Lag: r.long()}
	}
	b.Removed = make([]int32, max(r.count(4), 0))
	for i := range b.Removed {
		b.Removed[i] = r.int()
	}
	b.Free = r.int()
	return b
}

func putMembersReply(dst []byte, b *MembersReply) []byte {
	dst = putBool(putBool(putInt(putLong(dst, b.Cluster), b.Leader), b.Current), b.Changing)
	dst = putInt(putLong(dst, b.Index), int32(len(b.Members)))
	for i := range b.Members {
		m := &b.Members[i]
		dst = putBool(putBool(putStr(putInt(dst, m.ID), m.Address), m.Voter), m.Answering)
		dst = putLong(putLong(dst, m.Match), m.Lag)
	}
	dst = putInt(dst, int32(len(b.Removed)))
	for _, id := range b.Removed {
		dst = putInt(dst, id)
	}
	return putInt(dst, b.Free)
}
