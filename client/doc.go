// Package client is the Go client of Tenure over websocket.
//
// A Client keeps one session alive over any number of connections to any of its
// endpoints, one connection at a time. Writes are applied exactly once across
// reconnects; reads are linearizable unless asked to be stale; watches survive a
// reconnect with every event or say that there is a gap.
//
// What a caller must know about failures:
//
//   - A definite answer of the server is an *Error; errors.Is(err, znode.NoNode) and
//     so on work.
//   - ErrUnavailable: the request was never sent, so it was certainly not applied.
//   - ErrUnknown: a write was sent and its answer will never come, because its
//     session ended, or the caller's context did. It may or may not be applied. A
//     write whose context ended keeps its place: it is still sent again after a
//     reconnect.
//   - While a connection is merely lost nothing fails: calls wait for the next one,
//     at most until the session is over by the local clock.
//
// A session that is over is replaced by a new one by itself. Whatever was pending in
// the old one, calls and watches, ends with it.
package client
