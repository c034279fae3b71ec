package zk

import (
	"reflect"

	"github.com/tenure-dev/tenure/recipes"
)

// WatchTable returns the number of keys in the session's watch table, and of watches
// that somebody waits for.
func WatchTable(s recipes.Session) (keys, waiting int) {
	w := s.(*session).watches
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.m {
		waiting += len(e.waiting)
	}
	return len(w.m), waiting
}

// LibraryWatches returns how many watches the library holds for the session.
func LibraryWatches(s recipes.Session) (n int) {
	x := s.(*session)
	x.mu.Lock()
	defer x.mu.Unlock()
	table := reflect.ValueOf(x.mu.conn).Elem().FieldByName("watchers")
	for _, key := range table.MapKeys() {
		n += table.MapIndex(key).Len()
	}
	return n
}
