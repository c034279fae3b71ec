// Package differ compares two servers of ZooKeeper's protocol. A seed makes a sequence of
// steps of several sessions; the same sequence is played on both servers, and everything
// that the clients receive is compared frame by frame: errors, bodies, Stats, events, their
// order, and which connections end. What differs on purpose is in Deliberate. A sequence
// that finds anything else is shrunk to its shortest form.
package differ
