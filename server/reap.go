package server

import (
	"context"
	"syscall"
	"time"

	"github.com/tenure-dev/tenure/znode"
)

const (
	reapBatch = 1000
	// diskLook is how often the free space is looked at: often enough that what is
	// written between two looks, hundreds of MB/s at worst, is a small part of the
	// reserve. The rest of it is for what was taken already: the log's entries are
	// written once more when the state is flushed.
	diskLook = 100 * time.Millisecond
)

// reap looks after the state while this member leads: containers that lost their last
// child, TTL znodes that outlived theirs, and how much room there is.
func (s *Server) reap(ctx context.Context) {
	reap, disk := time.NewTicker(s.cfg.ReapInterval), time.NewTicker(diskLook)
	defer reap.Stop()
	defer disk.Stop()
	s.lookAtDisk()
	for {
		select {
		case <-ctx.Done():
			return
		case <-disk.C:
			s.lookAtDisk()
		case <-reap.C:
			s.reapOnce()
		}
	}
}

// reapOnce asks for the deletion of what has outlived itself. Whether it still has is
// judged again when the deletion is applied.
func (s *Server) reapOnce() {
	term := s.rep.Leads()
	if term == 0 {
		return
	}
	paths, err := s.store.Reapable(s.wallMs(), reapBatch)
	if err != nil {
		s.fail(err)
		return
	}
	for _, path := range paths {
		if err := s.proposeOwn(term, &znode.Reap{Path: path}); err != nil {
			s.log.Warn("reaping put off", "err", err)
			return
		}
	}
}

// lookAtDisk notes whether the reserve of free space is being eaten.
func (s *Server) lookAtDisk() {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(s.cfg.DataDir, &fs); err != nil {
		s.fail(err)
		return
	}
	free := int64(fs.Bavail) * fs.Bsize
	full := free < s.cfg.MinFreeDiskBytes
	if s.diskFull.Swap(full) != full {
		s.log.Warn("free disk space", "bytes", free, "min-free-disk-bytes", s.cfg.MinFreeDiskBytes, "growth_refused", full)
	}
}

// znodeBytes is what a znode counts besides its data against max-data-bytes.
const znodeBytes = 128

// full reports whether writes that grow the state are to be refused, here or on another
// member: all have to store them.
func (s *Server) full() bool { return s.fullHere() || s.reports.anyFull(s.now()) }

func (s *Server) fullHere() bool {
	if s.diskFull.Load() {
		return true
	}
	c := s.store.Counts()
	return s.cfg.MaxDataBytes > 0 && c.DataBytes+c.Znodes*znodeBytes >= s.cfg.MaxDataBytes
}
