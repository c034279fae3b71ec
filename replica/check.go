package replica

import (
	"errors"
	"fmt"

	"go.etcd.io/raft/v3/raftpb"
)

// Check verifies the log of a member that is not running, as Open does, and writes
// nothing: that all of it can be read and that a state whose last entry is applied
// belongs to it. Then it calls each with the entries behind applied, in order, committed
// or not. Of o only FS and Log count. Errors are those of Open, and what each returns.
func Check(dir string, o Options, applied uint64, each func(Entry) error) (err error) {
	o.withDefaults()
	var background error
	l, err := openLog(dir, o.FS, anyMember, 0, nil, true, o.Log, func(err error) { background = errors.Join(background, err) })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	if err := l.span().fits(applied); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	err = l.scan(applied+1, l.span().last+1, func(e *raftpb.Entry) error {
		entry := Entry{Index: e.GetIndex(), Term: e.GetTerm()}
		if e.GetType() == raftpb.EntryNormal {
			entry.Data = e.Data
		}
		return each(entry)
	})
	return errors.Join(err, background)
}
