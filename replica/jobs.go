package replica

import (
	"errors"
	"sync"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// appendJob is work for the log: messages of Raft to be written in order, or the wish
// to write what is unsettled.
type appendJob struct {
	msgs    []*raftpb.Message
	entries bool // msgs carry entries
	settle  bool
}

// applyJob is committed entries for the machine.
type applyJob struct {
	msgs []*raftpb.Message
}

// queue hands jobs from the loop to a goroutine, which takes all that wait at once. Its
// length is bounded by the loop: appendsMax, and applyBytesMax.
type queue[T any] struct {
	mu struct {
		sync.Mutex
		jobs   []T
		closed bool
	}
	cond *sync.Cond
}

func (q *queue[T]) init() { q.cond = sync.NewCond(&q.mu) }

func (q *queue[T]) put(job T) {
	q.mu.Lock()
	q.mu.jobs = append(q.mu.jobs, job)
	q.mu.Unlock()
	q.cond.Signal()
}

// close lets take return nothing once the queue is empty.
func (q *queue[T]) close() {
	q.mu.Lock()
	q.mu.closed = true
	q.mu.Unlock()
	q.cond.Signal()
}

// take waits for jobs and moves them to dst, whose memory is used for later ones.
func (q *queue[T]) take(dst []T) []T {
	clear(dst)
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.mu.jobs) == 0 && !q.mu.closed {
		q.cond.Wait()
	}
	jobs := q.mu.jobs
	q.mu.jobs = dst[:0]
	return jobs
}

// appendLoop is the append goroutine: everything that waits is one batch, one sync.
func (r *Replica) appendLoop() {
	defer r.wg.Done()
	var jobs []*appendJob
	var msgs []*raftpb.Message
	for {
		jobs = r.appends.take(jobs)
		if len(jobs) == 0 {
			return
		}
		settle := false
		clear(msgs)
		msgs = msgs[:0]
		for _, job := range jobs {
			msgs = append(msgs, job.msgs...)
			settle = settle || job.settle
		}
		if r.failure() != nil {
			continue
		}
		if err := r.write(msgs, settle); err != nil {
			r.failed(err)
			continue
		}
		for _, job := range jobs {
			r.in.complete(completion{append: job})
		}
	}
}

// write writes to the log, on the goroutine that has the append role.
func (r *Replica) write(msgs []*raftpb.Message, settle bool) error {
	start := time.Now()
	w, err := r.log.write(msgs)
	if err != nil {
		return err
	}
	if w.synced {
		r.stats.syncs.Add(1)
		took := int64(time.Since(start))
		r.syncNs.Add((took - r.syncNs.Load()) / 8)
		r.stats.logBytes.Add(int64(w.bytes))
		if f := r.o.Observe.Sync; f != nil {
			f(time.Duration(took), w.bytes)
		}
	} else if settle {
		return r.log.settle()
	}
	return nil
}

// applyLoop is the apply goroutine: everything that waits is one call of the machine.
func (r *Replica) applyLoop() {
	defer r.wg.Done()
	var jobs []*applyJob
	var entries []Entry
	for {
		jobs = r.applies.take(jobs)
		if len(jobs) == 0 {
			return
		}
		clear(entries)
		entries = entries[:0]
		for _, job := range jobs {
			entries = appendEntries(entries, job.msgs)
		}
		if err := r.apply(entries); err != nil {
			r.failed(err)
			continue
		}
		for _, job := range jobs {
			r.in.complete(completion{apply: job})
		}
	}
}

// apply feeds the machine, on the goroutine that has the apply role.
func (r *Replica) apply(entries []Entry) error {
	if err := r.failure(); err != nil {
		return err
	}
	start := time.Now()
	if err := r.o.Machine.Apply(entries); err != nil {
		return errors.Join(errors.New("replica: the machine cannot apply"), err)
	}
	r.applied.Store(entries[len(entries)-1].Index)
	r.stats.applied.Add(int64(len(entries)))
	if f := r.o.Observe.Apply; f != nil {
		f(time.Since(start), len(entries))
	}
	return nil
}

func appendEntries(dst []Entry, msgs []*raftpb.Message) []Entry {
	for _, m := range msgs {
		for _, e := range m.GetEntries() {
			entry := Entry{Index: e.GetIndex(), Term: e.GetTerm()}
			if e.GetType() == raftpb.EntryNormal && len(e.Data) > 0 {
				entry.Data = e.Data
			}
			dst = append(dst, entry)
		}
	}
	return dst
}
