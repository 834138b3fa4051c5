//go:build !linux

package launch

import "syscall"

// endsWithParent does nothing on this system, whose service managers end all processes of a
// service.
func endsWithParent() *syscall.SysProcAttr { return nil }
