//go:build unix && !linux

package recipestest

import "syscall"

// dieWithParent is what only Linux has.
func dieWithParent() *syscall.SysProcAttr { return nil }
