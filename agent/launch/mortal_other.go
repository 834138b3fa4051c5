//go:build !linux

package launch

import "syscall"

// mortal is nothing that this system knows; its service managers end all of a service.
func mortal() *syscall.SysProcAttr { return nil }
