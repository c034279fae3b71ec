//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package recipes

import (
	"errors"
	"os"
	"syscall"
)

// flock takes the lock of f, which ends with f or with the process.
func flock(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return ErrFenceLocked
	}
	return err
}
