// Package znode is the data model: znodes and their Stats, access lists, operations
// and results, and Apply, the pure transition function. The rules are ZooKeeper
// 3.9's; where Tenure differs on purpose, the function that differs says so.
//
// The package has no clock, no randomness, no goroutine and no disk. What the
// outcome of an operation depends on is in its arguments: the state it reads (View),
// what the leader decided (Stamp) and who asks (Txn). So all members that apply the
// same transactions in the same order have the same state.
//
// All types are plain values without locks: any number of goroutines may read one
// that nobody writes to. What Apply was given and what it returned is never written
// to again. Functions keep no state and may be called at any time.
package znode
