// Package watch knows who watches what and which of them a change concerns. It has
// no goroutines and no locks: its owner serializes all calls. The rules are
// ZooKeeper 3.9's: one-shot data and child watches, persistent and persistent
// recursive ones, each independent of the others on the same path.
package watch

import "github.com/tenure-dev/tenure/znode"

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

// Event is one event for one Watcher. ACL is the list that must grant READ to the
// watcher's identities, or the event is dropped (CVE-2024-23944).
type Event struct {
	To   Watcher
	Type znode.EventType
	Path string
	ACL  []znode.ACL
}
