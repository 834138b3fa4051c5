//go:build !linux

package launch

import "syscall"

// mortal does nothing on this system, whose service managers end all processes of a service.
func mortal() *syscall.SysProcAttr { return nil }
