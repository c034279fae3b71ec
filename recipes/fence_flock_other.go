//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package recipes

import (
	"fmt"
	"os"
	"runtime"
)

// flock refuses: a file that two processes may raise guards nothing.
func flock(*os.File) error {
	return fmt.Errorf("%w: no flock on %s", ErrUnsupported, runtime.GOOS)
}
