package client

// fifo is a queue in a ring that grows. Whoever owns it bounds it.
type fifo[T any] struct {
	ring []T // its length is a power of two
	head int
	n    int
}

func (f *fifo[T]) len() int { return f.n }

func (f *fifo[T]) push(v T) {
	if f.n == len(f.ring) {
		ring := make([]T, max(16, 2*len(f.ring)))
		for i := range f.n {
			ring[i] = f.at(i)
		}
		f.ring, f.head = ring, 0
	}
	f.ring[(f.head+f.n)&(len(f.ring)-1)] = v
	f.n++
}

// front returns the oldest; there must be one.
func (f *fifo[T]) front() T { return f.at(0) }

// at returns the one that has i before it; there must be one.
func (f *fifo[T]) at(i int) T { return f.ring[(f.head+i)&(len(f.ring)-1)] }

// pop removes the oldest; there must be one.
func (f *fifo[T]) pop() T {
	var zero T
	v := f.ring[f.head]
	f.ring[f.head] = zero
	f.head = (f.head + 1) & (len(f.ring) - 1)
	f.n--
	return v
}

// drain empties the queue and returns what was in it, oldest first.
func (f *fifo[T]) drain() []T {
	all := make([]T, 0, f.n)
	for f.n > 0 {
		all = append(all, f.pop())
	}
	f.ring, f.head = nil, 0
	return all
}
