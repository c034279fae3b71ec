//go:build !linux

package main

import "syscall"

// processAttributes puts a command into a process group of its own. Nothing here ends it
// when this process is killed.
func processAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// awaitExit cannot wait without taking the process away: what is left of its group is not
// looked for.
func awaitExit(int) bool { return false }
