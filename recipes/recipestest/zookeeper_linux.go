package recipestest

import "syscall"

// dieWithParent makes the kernel kill a child when the thread that started it ends, so
// that a test that was killed leaves no servers behind.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
