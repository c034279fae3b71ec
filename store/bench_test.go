package store_test

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tenure-dev/tenure/store"
	"github.com/tenure-dev/tenure/znode"
)

// benchmarkBatch applies txn(i) for each i in batches of 1, 16 and 256.
func benchmarkBatch(b *testing.B, txn func(i int) *znode.Txn) {
	for _, size := range []int{1, 16, 256} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			s := mustOpen(b, vfs.NewMem(), store.Options{})
			defer s.Close()
			write(b, s, create("/b", nil))
			for i := range 1000 {
				write(b, s, create(fmt.Sprintf("/b/%d", i), make([]byte, 100)))
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				// One iteration is one transaction; a batch ends every size of them.
				batch := s.Begin(s.Applied() + 1)
				for range size {
					batch.Apply(znode.Stamp{TimeMs: int64(i)}, txn(i))
					i++
				}
				if err := batch.Commit(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(i), "ns/txn")
		})
	}
}

func BenchmarkBatchCreate(b *testing.B) {
	data := make([]byte, 100)
	n := 1000
	benchmarkBatch(b, func(int) *znode.Txn {
		n++
		return &znode.Txn{Op: create(fmt.Sprintf("/b/%d", n), data)}
	})
}

func BenchmarkBatchSet(b *testing.B) {
	data := make([]byte, 100)
	paths := make([]string, 1000)
	for i := range paths {
		paths[i] = fmt.Sprintf("/b/%d", i)
	}
	benchmarkBatch(b, func(i int) *znode.Txn {
		return &znode.Txn{Op: &znode.SetData{Path: paths[i%1000], Data: data, Version: -1}}
	})
}

// wide is a store with n znodes of 100 bytes under /b, flushed.
func wide(b *testing.B, n int, o store.Options) (*store.Store, []string) {
	b.Helper()
	s := mustOpen(b, vfs.NewMem(), o)
	b.Cleanup(func() { s.Close() })
	write(b, s, create("/b", nil))
	paths := make([]string, n)
	var all []entry
	for i := range paths {
		paths[i] = fmt.Sprintf("/b/%07d", i)
		all = append(all, entry{txn: &znode.Txn{Op: create(paths[i], make([]byte, 100))}})
	}
	play(b, s, all, 1000)
	if _, err := s.Flush(); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	return s, paths
}

func BenchmarkNodeHit(b *testing.B) {
	s, paths := wide(b, 1000, store.Options{})
	i := 0
	for b.Loop() {
		if n, _, _ := s.Node(paths[i%len(paths)]); n == nil {
			b.Fatal("missing")
		}
		i++
	}
}

func BenchmarkNodeMiss(b *testing.B) {
	s, paths := wide(b, 100_000, store.Options{CacheBytes: 1})
	i := 0
	for b.Loop() {
		if n, _, _ := s.Node(paths[i*7919%len(paths)]); n == nil {
			b.Fatal("missing")
		}
		i++
	}
}

func BenchmarkNodeAbsent(b *testing.B) {
	s, paths := wide(b, 100_000, store.Options{})
	i := 0
	for b.Loop() {
		if n, _, _ := s.Node(paths[i%len(paths)][:9] + "x"); n != nil {
			b.Fatal("there")
		}
		i++
	}
}

func BenchmarkListSmall(b *testing.B) {
	s := mustOpen(b, vfs.NewMem(), store.Options{})
	defer s.Close()
	write(b, s, create("/l", nil))
	for i := range 20 {
		write(b, s, create(fmt.Sprintf("/l/%d", i), nil))
	}
	b.ReportAllocs()
	for b.Loop() {
		if names, _ := s.List("/l", "", 0); len(names) != 20 {
			b.Fatal(names)
		}
	}
}
