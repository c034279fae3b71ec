//go:build !race

package recipestest

const raceDetector = false
