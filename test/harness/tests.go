package harness

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/pipeops/pipeops-vm-agent/test/inputs"
)

// closeTimeout bounds the clean-up after tests.
const closeTimeout = 2 * time.Minute

// RunTests starts a system, runs the tests of a package on it, and takes it down. It returns the
// exit code. The logs of the parts outlive a failure. A response that broke the Runner API's
// document is a failure, too.
func RunTests(tests interface{ Run() int }, opts Options, start func(context.Context, *System) error) (code int) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s, err := New(opts)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		if code != 0 {
			s.keepLogs(ctx)
		}
		if err := s.Close(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "clean-up:", err)
			code = 1
		}
	}()
	if err := start(ctx, s); err != nil {
		fmt.Fprintln(os.Stderr, "start the system:", err)
		return 1
	}
	code = inputs.Main(tests)
	if err := s.Violations(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// keepLogs copies the logs of the parts for the analysis of a failure.
func (s *System) keepLogs(ctx context.Context) {
	dir, err := os.MkdirTemp("", "pipeops-"+s.Name+"-failed-")
	if err == nil {
		err = s.SaveLogs(ctx, dir)
	}
	fmt.Fprintln(os.Stderr, "logs of the parts:", dir, err)
}
