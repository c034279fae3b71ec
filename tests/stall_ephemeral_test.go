package tests

import (
	"fmt"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/client"
)

// Goal: the ephemerals of a client that died stay for the session's timeout and then go
// all at once, and never stay for ever, whatever happens to the member meanwhile. Method:
// a client makes 100 and its connection is cut; once with the member running on, once
// with a kill -9 of the member in between. Times are the observer's. After one more
// restart nothing of the session may be left.
func TestC021EphemeralsOfADeadClient(t *testing.T) {
	const timeout = 3 * time.Second
	for _, test := range []struct {
		name   string
		kill   bool
		latest time.Duration // after the last heartbeat
	}{
		{"member runs on", false, timeout + time.Second},
		{"member is killed", true, 2*timeout + time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := newMember(t)
			c := m.connect(client.Options{})
			mustCreate(t, c, "/dead")
			gone := observe(t, c, "/dead")
			paths := make([]string, 100)
			for i := range paths {
				paths[i] = fmt.Sprintf("/dead/%d", i)
			}
			s := mustOpen(t, m.dial, timeout, paths...)
			sent, answered, _ := s.proven()
			s.close()
			if test.kill {
				<-time.After(timeout / 6)
				m.crash()
				m.start()
			}
			gone.await(t, len(paths), 4*timeout)
			_, first := gone.of(paths[0])
			for _, path := range paths {
				at, zxid := gone.of(path)
				if early, late := at.Sub(sent), at.Sub(answered); early < timeout || late > test.latest || zxid != first {
					t.Errorf("%s went %v after the last heartbeat was sent (at least %v, at most %v), with zxid 0x%x, the first with 0x%x",
						path, early, timeout, test.latest, zxid, first)
				}
			}
			m.crash()
			m.start()
			_, stat, err := c.Get(t.Context(), "/dead", client.ReadOptions{})
			if err != nil || stat.NumChildren != 0 || stat.Pzxid != first {
				t.Errorf("%v, the parent is %+v, the deletion had zxid 0x%x", err, stat, first)
			}
			list, err := c.Sessions(t.Context(), 0, 0)
			for _, info := range list.Sessions {
				if info.ID == s.id {
					t.Errorf("session %v is still listed", s.id)
				}
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}
