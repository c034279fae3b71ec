// Package recipes is what services that must run in exactly one place are built from:
// elections, locks, leases, group membership, configuration, queues and shards, on
// Tenure and on an existing ZooKeeper ensemble.
//
// Everything that can be held is held as a *Tenure: a fencing token that grows, a context
// that ends before the deadline, a Check to call before every action, a Guard for writes
// that happen only while it is held. Whoever learned it once knows all recipes.
//
// A recipe knows its backend as a Store: recipes/native is Tenure, recipes/zk is
// ZooKeeper, recipes/recipestest has one in memory with faults to order. What a backend
// can promise is in Caps, and docs/guarantees.md says what follows.
//
// A ctx bounds waiting, never ownership: what Campaign returned outlives the ctx it was
// given and ends by Release, by its deadline or with its session.
package recipes
