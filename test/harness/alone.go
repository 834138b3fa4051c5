package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Alone waits until no other process of this machine runs tests on a system of that name, such as
// the same tests of another checkout: they would share a cluster and a broker, and remove both at
// their end. The lock ends with the process at the latest.
func Alone(ctx context.Context, name string, out io.Writer) (release func(), err error) {
	path := filepath.Join(os.TempDir(), "pipeops-"+name+".lock")
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	waits := false
	for tick := time.NewTicker(time.Second / 4); ; {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			tick.Stop()
			return func() { _ = file.Close() }, nil
		case !errors.Is(err, unix.EWOULDBLOCK):
			tick.Stop()
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
		case !waits:
			waits = true
			fmt.Fprintf(out, "waiting: another process runs tests on the system %s\n", name)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			tick.Stop()
			return nil, errors.Join(fmt.Errorf("another process runs tests on the system %s: %w", name, ctx.Err()), file.Close())
		}
	}
}
