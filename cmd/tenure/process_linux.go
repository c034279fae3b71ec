package main

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// processAttributes puts a command into a process group of its own and has the kernel kill
// it when the thread that started it ends, which it does with this process.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitExit returns when the process has ended, and leaves it to be waited for: until
// then its pid names its process group and nobody else's. It reports whether it could.
func awaitExit(pid int) bool {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err == nil
		}
	}
}
