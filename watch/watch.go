// Package watch knows who watches what and which of them a change concerns. It has
// no goroutines and no locks: its owner serializes all calls. The rules are
// ZooKeeper 3.9's: one-shot data and child watches, persistent and persistent
// recursive ones, each independent of the others on the same path.
//
// What a change fires, in this order. A row reaches each watcher once, however many
// watches of it match:
//
//	            watches of X: Data, Persistent;   Child of X        Child and Persistent
//	            Recursive of X and all above                        of X's parent
//	created     Created X                         -                 ChildrenChanged
//	deleted     Deleted X                         Deleted X (*)     ChildrenChanged
//	data set    DataChanged X                     -                 -
//
// (*) used up, but told only to those who did not get the first column's. A change of
// the access list fires nothing.
package watch

import (
	"iter"

	"github.com/tenure-dev/tenure/znode"
)

// Watcher is who is told: one connection. The owner chooses the numbers; 0 is nobody.
type Watcher uint64

// Mode is a set of the kinds of watch that one Watcher may have on one path.
type Mode uint8

const (
	Data       Mode = 1 << iota // one-shot: created, deleted, data changed
	Child                       // one-shot: children changed, deleted
	Persistent                  // all of both, until removed
	Recursive                   // created, deleted, data changed of the path and all below
)

// All is every Mode.
const All = Data | Child | Persistent | Recursive

// modes is the number of single modes; mode k is Mode(1 << k).
const modes = 4

// Watch is one Watcher's watches on one path.
type Watch struct {
	Path string
	Mode Mode
}

// Set is the watches that one client wants again after a reconnect, as clients list
// them: Data and Exist are both one-shot Data watches, of znodes that were there and
// that were missing.
type Set struct{ Data, Exist, Child, Persistent, Recursive []string }

// Len is the number of entries in all lists.
func (s *Set) Len() int {
	return len(s.Data) + len(s.Exist) + len(s.Child) + len(s.Persistent) + len(s.Recursive)
}

// All yields the entries of the lists in the order of the fields.
func (s *Set) All() iter.Seq2[string, Mode] {
	return func(yield func(string, Mode) bool) {
		for _, list := range [...]struct {
			paths []string
			mode  Mode
		}{{s.Data, Data}, {s.Exist, Data}, {s.Child, Child}, {s.Persistent, Persistent}, {s.Recursive, Recursive}} {
			for _, path := range list.paths {
				if !yield(path, list.mode) {
					return
				}
			}
		}
	}
}

// Event is one event for one Watcher. ACL is the list that must grant READ to the
// watcher's identities, or the event is dropped (CVE-2024-23944); an empty one lets
// everybody read.
type Event struct {
	To   Watcher
	Type znode.EventType
	Path string
	ACL  []znode.ACL
}
