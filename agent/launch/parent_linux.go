package launch

import "syscall"

// endsWithParent makes a child end with its parent, however that ends.
func endsWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
