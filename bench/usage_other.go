//go:build !unix

package bench

import (
	"runtime"
	"time"
)

// ownCPU is not known here.
func ownCPU() time.Duration { return 0 }

func kernel() string { return runtime.GOOS }
