package launch

import "syscall"

// mortal makes a child end with its parent, however that ends.
func mortal() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
