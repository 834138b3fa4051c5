package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/pipeops/pipeops-vm-agent/test/filelock"
)

// claim is a system's name, which one process of this machine has at a time.
type claim struct {
	file   string
	unlock func() error
}

// take waits until the name is free.
func (c *claim) take(ctx context.Context, name string, out io.Writer) (err error) {
	if c.unlock != nil {
		return nil
	}
	c.file = filepath.Join(os.TempDir(), "pipeops-"+name+".lock")
	c.unlock, err = filelock.Wait(ctx, c.file, func() {
		fmt.Fprintf(out, "waiting: another process has the system %s\n", name)
	})
	return err
}

// release removes the file while it is locked, so that a waiting process locks a new file.
func (c *claim) release() error {
	if c.unlock == nil {
		return nil
	}
	unlock := c.unlock
	c.unlock = nil
	return errors.Join(os.Remove(c.file), unlock())
}
