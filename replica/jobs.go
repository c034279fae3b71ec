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
	msgs    []*raftpb.Message
	settled int // own proposals in msgs; set when they are applied
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
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.mu.jobs) == 0 && !q.mu.closed {
		q.cond.Wait()
	}
	return q.takeLocked(dst)
}

func (q *queue[T]) takeLocked(dst []T) []T {
	clear(dst)
	jobs := q.mu.jobs
	q.mu.jobs = dst[:0]
	return jobs
}

// takeNow is take that does not wait.
func (q *queue[T]) takeNow() []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.takeLocked(nil)
}

// appendLoop is the append goroutine.
func (r *Replica) appendLoop() {
	defer r.wg.Done()
	var jobs []*appendJob
	for {
		if jobs = r.appends.take(jobs); len(jobs) == 0 {
			return
		}
		r.appendAll(jobs)
	}
}

// appendAll carries out all jobs that wait: one batch, one sync.
func (r *Replica) appendAll(jobs []*appendJob) {
	clear(r.appendMsgs)
	msgs := r.appendMsgs[:0]
	settle := false
	for _, job := range jobs {
		msgs = append(msgs, job.msgs...)
		settle = settle || job.settle
	}
	r.appendMsgs = msgs
	if r.failure() != nil {
		return
	}
	var err error
	if s := snapshotOf(msgs); s != nil {
		err = r.install(msgs, s.GetIndex())
	} else {
		err = r.write(msgs, settle)
	}
	if err != nil {
		r.failed(err)
		return
	}
	for _, job := range jobs {
		r.in.complete(completion{append: job})
	}
	r.loop.poke()
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

// applyLoop is the apply goroutine.
func (r *Replica) applyLoop() {
	defer r.wg.Done()
	var jobs []*applyJob
	for {
		if jobs = r.applies.take(jobs); len(jobs) == 0 {
			return
		}
		r.applyAll(jobs)
	}
}

// applyAll carries out all jobs that wait.
func (r *Replica) applyAll(jobs []*applyJob) {
	for _, job := range jobs {
		clear(r.applyEntries)
		r.applyEntries = appendEntries(r.applyEntries[:0], job.msgs)
		if err := r.applyOne(job, r.applyEntries); err != nil {
			r.failed(err)
			return
		}
		r.loop.poke()
	}
}

// applyOne carries out one job. What a snapshot that was installed since has already is left
// out. The loop hears of it before a snapshot is installed: it would not know own proposals
// any more.
func (r *Replica) applyOne(job *applyJob, entries []Entry) (err error) {
	r.machine.RLock()
	defer r.machine.RUnlock()
	applied := r.applied.Load()
	for len(entries) > 0 && entries[0].Index <= applied {
		entries = entries[1:]
	}
	if len(entries) > 0 {
		job.settled, err = r.apply(entries)
	}
	if err == nil {
		r.in.complete(completion{apply: job})
	}
	return err
}

// apply feeds the machine, on the goroutine that has the apply role, and returns how many
// of this process's proposals were applied.
func (r *Replica) apply(entries []Entry) (int, error) {
	if err := r.failure(); err != nil {
		return 0, err
	}
	start := time.Now()
	settled, err := r.o.Machine.Apply(entries)
	if err != nil {
		return 0, errors.Join(errors.New("replica: the machine cannot apply"), err)
	}
	r.applied.Store(entries[len(entries)-1].Index)
	r.stats.applied.Add(int64(len(entries)))
	if f := r.o.Observe.Apply; f != nil {
		f(time.Since(start), len(entries))
	}
	return settled, nil
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
