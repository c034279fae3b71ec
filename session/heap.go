package session

// deadlineHeap is a binary min-heap of sessions. The key of a slot is the deadline
// that its session had when the slot was last moved.
//
// Invariant: key <= session's deadline, and for each slot i: slots[i].session.pos == i.
// A deadline only grows, so the smallest key bounds all deadlines from below.
type deadlineHeap struct{ slots []slot }

type slot struct {
	key     int64 // beside the pointer, so that comparing does not fetch the session
	session *tracked
}

func (s slot) before(o slot) bool {
	return s.key < o.key || s.key == o.key && s.session.id < o.session.id
}

// earliest returns the session with the smallest (deadline, id), nil if there is
// none. It first moves the sessions that were touched since their slots were moved.
func (h *deadlineHeap) earliest() *tracked {
	for len(h.slots) > 0 {
		first := &h.slots[0]
		if first.key == first.session.deadline {
			return first.session
		}
		first.key = first.session.deadline
		h.down(0)
	}
	return nil
}

func (h *deadlineHeap) push(s *tracked) {
	s.pos = len(h.slots)
	h.slots = append(h.slots, slot{s.deadline, s})
	h.up(s.pos)
}

func (h *deadlineHeap) remove(s *tracked) {
	i, last := s.pos, len(h.slots)-1
	h.swap(i, last)
	h.slots[last] = slot{}
	h.slots = h.slots[:last]
	s.pos = notInHeap
	if i < last {
		h.down(i)
		h.up(i)
	}
}

func (h *deadlineHeap) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !h.slots[i].before(h.slots[parent]) {
			return
		}
		h.swap(i, parent)
		i = parent
	}
}

func (h *deadlineHeap) down(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(h.slots); child++ {
			if h.slots[child].before(h.slots[least]) {
				least = child
			}
		}
		if least == i {
			return
		}
		h.swap(i, least)
		i = least
	}
}

func (h *deadlineHeap) swap(i, j int) {
	h.slots[i], h.slots[j] = h.slots[j], h.slots[i]
	h.slots[i].session.pos = i
	h.slots[j].session.pos = j
}
