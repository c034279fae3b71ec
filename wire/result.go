package wire

import (
	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/znode"
)

// The first bytes of the other persistent formats.
const (
	resultVersion  formatVersion = 1
	changesVersion formatVersion = 1
)

// The first byte of a session tells whether it has an owner. One without, as it was in the
// first version, is still written in that form, so that each session has one form.
const (
	sessionOwnerless = 1
	sessionOwned     = 2
)

// AppendResult appends the persistent form of r: Kind, Err, Zxid and the fields that go
// with Kind. It panics if a multi is among the results of a multi.
func AppendResult(dst []byte, r *znode.Result) []byte {
	dst = recResult(append(dst, byte(resultVersion)), r)
	if r.Kind != znode.ResultMulti {
		return dst
	}
	dst = recUint(dst, uint64(len(r.Sub)))
	for i := range r.Sub {
		if r.Sub[i].Kind == znode.ResultMulti {
			panic("wire: a multi's result has a multi in it")
		}
		dst = recResult(dst, &r.Sub[i])
	}
	return dst
}

func recResult(dst []byte, r *znode.Result) []byte {
	dst = recInt(recInt32(append(dst, byte(r.Kind)), int32(r.Err)), r.Zxid)
	switch r.Kind {
	case znode.ResultCreate:
		return recStr(dst, r.Path)
	case znode.ResultCreateStat:
		return recStat(recStr(dst, r.Path), &r.Stat)
	case znode.ResultSetData, znode.ResultSetACL:
		return recStat(dst, &r.Stat)
	case znode.ResultSession:
		return recSession(dst, &r.Session)
	}
	return dst
}

// DecodeResult decodes what AppendResult appends. Nothing aliases data.
func DecodeResult(data []byte) (znode.Result, error) {
	r := recordReader{buf: data}
	resultVersion.read(&r)
	res := r.result()
	if res.Kind == znode.ResultMulti {
		n := r.count(3)
		res.Sub = make([]znode.Result, 0, n)
		for i := 0; i < n && r.err == nil; i++ {
			sub := r.result()
			if sub.Kind == znode.ResultMulti {
				r.fail("multi inside a multi in front of this", sub.Kind)
			}
			res.Sub = append(res.Sub, sub)
		}
	}
	if err := r.done("result"); err != nil {
		return znode.Result{}, err
	}
	return res, nil
}

func (r *recordReader) result() (res znode.Result) {
	kind := r.byte()
	if kind > byte(znode.ResultSession) {
		r.off--
		r.fail("unknown kind of result", kind)
		return res
	}
	res.Kind = znode.ResultKind(kind)
	res.Err, res.Zxid = znode.Error(r.int32()), r.int()
	switch res.Kind {
	case znode.ResultCreate:
		res.Path = r.str()
	case znode.ResultCreateStat:
		res.Path, res.Stat = r.str(), r.stat()
	case znode.ResultSetData, znode.ResultSetACL:
		res.Stat = r.stat()
	case znode.ResultSession:
		res.Session = r.session()
	}
	return res
}

// AppendChanges appends the persistent form of the changes of one transaction.
func AppendChanges(dst []byte, changes []znode.Change) []byte {
	dst = recUint(append(dst, byte(changesVersion)), uint64(len(changes)))
	for i := range changes {
		c := &changes[i]
		dst = recStr(append(dst, byte(c.Type)), c.Path)
		dst = recACL(recACL(dst, c.ACL), c.ParentACL)
	}
	return dst
}

// DecodeChanges decodes what AppendChanges appends. Nothing aliases data; an access
// list that is open to everybody is znode.OpenACL itself and must not be changed.
func DecodeChanges(data []byte) ([]znode.Change, error) {
	r := recordReader{buf: data}
	changesVersion.read(&r)
	changes := make([]znode.Change, r.count(4))
	for i := range changes {
		if r.err != nil {
			break
		}
		c := &changes[i]
		c.Type = znode.EventType(r.byte())
		if c.Type < znode.EventCreated || c.Type > znode.EventDataChanged {
			r.fail("unknown type of change in front of this", c.Type)
		}
		c.Path, c.ACL, c.ParentACL = r.str(), r.acl(), r.acl()
	}
	if err := r.done("changes"); err != nil {
		return nil, err
	}
	return changes, nil
}

// AppendSession appends the persistent form of s.
func AppendSession(dst []byte, s *session.Session) []byte {
	if s.Owner == (session.Owner{}) {
		return recSession(append(dst, sessionOwnerless), s)
	}
	return recOwner(recSession(append(dst, sessionOwned), s), s.Owner)
}

// recSession appends s without its owner, which only whoever applies it needs.
func recSession(dst []byte, s *session.Session) []byte {
	return append(recInt32(recInt(dst, int64(s.ID)), s.TimeoutMs), s.Password[:]...)
}

// DecodeSession decodes what AppendSession appends.
func DecodeSession(data []byte) (session.Session, error) {
	r := recordReader{buf: data}
	version := r.byte()
	if version != sessionOwnerless && version != sessionOwned {
		r.off--
		r.fail("unknown version of a session", version)
	}
	s := r.session()
	if version == sessionOwned {
		if s.Owner = r.owner(); s.Owner == (session.Owner{}) {
			r.fail("session of nobody in the form of one with an owner", version)
		}
	}
	if err := r.done("session"); err != nil {
		return session.Session{}, err
	}
	return s, nil
}

func (r *recordReader) session() (s session.Session) {
	s.ID, s.TimeoutMs = session.ID(r.int()), r.int32()
	s.Password = r.password()
	return s
}
