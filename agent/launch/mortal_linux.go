package launch

import "syscall"

// mortal has a child end with the one that started it, however that ends.
func mortal() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
