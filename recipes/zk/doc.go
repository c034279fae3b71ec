// Package zk is a recipes.Store on an existing ZooKeeper ensemble (3.5 or later), through
// github.com/go-zookeeper/zk.
//
// What it gives:
//
//   - a Session per ZooKeeper session. The library goes on with a new session under the
//     same handle when the old one expired; here each has a connection of its own, so
//     that no call of one session is ever made in another;
//   - the negotiated timeout, and proofs that count from when the first byte of that very
//     renewal was written, read off the wire below the library;
//   - a session that is Over by the local clock after 4/3 of its timeout without a word
//     from the ensemble: the library says nothing while it is partitioned;
//   - contexts, the outcome classes of recipes.Store, and watches that end with Gap when
//     the connection breaks: that the library arms them anew is not relied upon;
//   - a chroot for all paths, those of transactions too.
//
// What it cannot give:
//
//   - Caps.ExactExpiry: a member answers for the ensemble without asking the leader, who
//     decides expiry. New holders hold off instead (docs/guarantees.md);
//   - Caps.SessionProbe: SessionOpen is ErrUnsupported;
//   - containers in transactions and sequential ones: they are persistent;
//   - removal of watches at the server: a canceled one lives there until it fires or the
//     session ends. Watches of the same znode share one.
//
// A call in flight cannot be taken back from the library. One whose ctx ends goes on in
// the background; later calls of the same session wait for it if it was a write, so that
// a session's order stays the order of its calls.
package zk
