package wire

import (
	"fmt"
	"strconv"
)

// memberSteps reads what addMemberSteps writes.
func (r *jsonReader) memberSteps() []MemberStep {
	steps := []MemberStep{}
	for at := r.list("a list of steps"); r.more(']', &at); {
		var s MemberStep
		for at := r.object(); r.more('}', &at); {
			switch string(r.key()) {
			case "step":
				name := r.str()
				if s.Kind = memberSteps[name]; s.Kind == 0 {
					r.refuse(fmt.Sprintf("must be add, promote, demote, remove or move, not %.30q", name))
				}
			case "member":
				s.ID = r.int()
			case "address":
				s.Address = r.str()
			default:
				r.refuse("is unknown")
				r.skip()
			}
		}
		if s.Kind == 0 {
			r.field = []byte("steps")
			r.refuse("has one without a step")
		}
		steps = append(steps, s)
	}
	return steps
}

func addMemberSteps(dst []byte, steps []MemberStep) []byte {
	return addList(dst, "steps", len(steps), func(dst []byte, i int) []byte {
		s := &steps[i]
		dst = append(append(dst, `,{"step":"`...), s.Kind.String()...)
		dst = addInt(append(dst, '"'), "member", s.ID)
		if s.Address != "" {
			dst = addStr(dst, "address", s.Address)
		}
		return append(dst, '}')
	})
}

// members reads what addMembers writes.
func (r *jsonReader) members() []MemberInfo {
	infos := []MemberInfo{}
	for at := r.list("a list of members"); r.more(']', &at); {
		var m MemberInfo
		for at := r.object(); r.more('}', &at); {
			switch string(r.key()) {
			case "member":
				m.ID = r.int()
			case "address":
				m.Address = r.str()
			case "voter":
				m.Voter = r.bool()
			case "answering":
				m.Answering = r.bool()
			case "match":
				m.Match = r.long()
			case "lag":
				m.Lag = r.long()
			default:
				r.skip()
			}
		}
		infos = append(infos, m)
	}
	return infos
}

func (r *jsonReader) ints() []int32 {
	all := []int32{}
	for at := r.list("a list of numbers"); r.more(']', &at); {
		all = append(all, r.int())
	}
	return all
}

func addMembers(dst []byte, b *MembersReply) []byte {
	dst = addInt(addLong(dst, "cluster", b.Cluster), "leader", b.Leader)
	dst = addLong(addBool(addBool(dst, "current", b.Current), "changing", b.Changing), "index", b.Index)
	dst = addList(dst, "members", len(b.Members), func(dst []byte, i int) []byte {
		m := &b.Members[i]
		dst = strconv.AppendInt(append(dst, `,{"member":`...), int64(m.ID), 10)
		dst = addBool(addBool(addStr(dst, "address", m.Address), "voter", m.Voter), "answering", m.Answering)
		return append(addLong(addLong(dst, "match", m.Match), "lag", m.Lag), '}')
	})
	dst = addList(dst, "removed", len(b.Removed), func(dst []byte, i int) []byte {
		return strconv.AppendInt(append(dst, ','), int64(b.Removed[i]), 10)
	})
	return addInt(dst, "free", b.Free)
}
