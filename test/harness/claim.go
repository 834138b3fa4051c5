package harness

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/pipeops/pipeops-vm-agent/test/filelock"
)

// claim is a system's name, which one process of this machine has at a time.
type claim struct{ unlock func() error }

// take waits until the name is free.
func (c *claim) take(ctx context.Context, name string, out io.Writer) (err error) {
	if c.unlock != nil {
		return nil
	}
	c.unlock, err = filelock.Wait(ctx, filepath.Join(os.TempDir(), "pipeops-"+name+".lock"), func() {
		fmt.Fprintf(out, "waiting: another process has the system %s\n", name)
	})
	return err
}

func (c *claim) release() error {
	if c.unlock == nil {
		return nil
	}
	unlock := c.unlock
	c.unlock = nil
	return unlock()
}
