//go:build race

package recipestest

// raceDetector is whether the race detector watches, which makes all that only computes
// five times as slow.
const raceDetector = true
