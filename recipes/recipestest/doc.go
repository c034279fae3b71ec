// Package recipestest is what recipes are tested with, here and by whoever builds on
// them: backends, faults to order, and a judge of what came out.
//
//   - Fake is an ensemble in memory, in Tenure's or in ZooKeeper's manner. It lives in a
//     bubble of testing/synctest too, where a session timeout costs no time at all.
//   - Proxy plays the same faults on connections to real servers; ZooKeeper starts some.
//   - Harness and Peer are what all backends look like to a test: a Peer is one process
//     with its Store, and with verbs for what can befall its connection.
//   - Hooked calls a function before and after each call of any Store.
//   - Invariant notes who believed to hold what and says whether two believed it at once;
//     Plan is a list of faults that a seed determines; Overlap runs elections under them.
//
// Code that uses recipes takes a recipes.Store, so its tests give it one of a Fake:
//
//	func TestWorkerStopsWhenItsSessionEnds(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			fake := recipestest.NewFake(recipestest.FakeOptions{Exact: true})
//			worker, other := fake.Open(t), fake.Open(t)
//			run := StartWorker(t.Context(), worker.Store) // your code
//			worker.Partition()
//			<-run.Stopped
//			if _, err := Lead(t.Context(), other.Store); err != nil { // your code
//				t.Error(err)
//			}
//		})
//	}
//
// Run such a test with Exact and without: what holds on both holds on both backends.
// Faults that need more than one member have verbs only if FakeOptions.Members says so.
package recipestest
