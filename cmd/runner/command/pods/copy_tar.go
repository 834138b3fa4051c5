package pods

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
)

// maxComplaints bounds what is kept of tar's messages.
const maxComplaints = 4 << 10

// errNoTar means that nothing was copied, though something may have been sent.
var errNoTar = errors.New("there is no tar in the image")

// tarCall runs programs in the container.
type tarCall struct {
	*client.Client
	key  runnerapi.Key
	opts runnerapi.ExecOptions
	said complaints
	// recorded is called if the session is recorded.
	recorded func(string)
}

// complaints keeps the beginning of a program's messages.
type complaints struct{ text []byte }

// Write implements io.Writer.
func (c *complaints) Write(p []byte) (int, error) {
	c.text = append(c.text, p[:min(len(p), maxComplaints-len(c.text))]...)
	return len(p), nil
}

func (c *complaints) String() string {
	return cli.Printable(strings.ReplaceAll(strings.TrimSpace(string(c.text)), "\n", "; "))
}

// run runs tar until it ends, or ctx.
func (t *tarCall) run(ctx context.Context, stdin io.Reader, stdout io.Writer, args ...string) error {
	opts := t.opts
	opts.Command, opts.Stdin = append([]string{"tar"}, args...), stdin != nil
	code, err := t.Apps().Exec(ctx, t.key, opts, runnerapi.ExecStreams{Stdin: stdin, Stdout: stdout, Stderr: &t.said, Recorded: t.recorded})
	known := &runnerapi.Error{}
	switch {
	case errors.As(err, &known) && noProgram(known.Detail), code == 126, code == 127:
		return &cmdutil.ExitError{Err: fmt.Errorf("%w of %s", errNoTar, t.key), Code: cmdutil.ExitFailure,
			Fix: "use an image that has it, or a container beside that does (-c), or for a single file a program that there is: pipeops-runner exec"}
	case err != nil:
		return err
	case code != 0:
		return fmt.Errorf("tar in the container ended with exit code %d: %s", code, &t.said)
	}
	return nil
}

// noProgram recognizes the container runtimes' texts about a missing tar.
func noProgram(detail string) bool {
	for _, says := range []string{"executable file not found", "no such file or directory", "there is no program"} {
		if strings.Contains(detail, `"tar"`) && strings.Contains(detail, says) {
			return true
		}
	}
	return false
}

// isDirectory runs test in the container. If the container has none, a trailing slash marks a
// directory.
func (t *tarCall) isDirectory(ctx context.Context, path string) bool {
	if strings.HasSuffix(path, "/") || path == "." {
		return true
	}
	opts := t.opts
	opts.Command = []string{"test", "-d", path}
	code, err := t.Apps().Exec(ctx, t.key, opts, runnerapi.ExecStreams{Stdout: io.Discard, Stderr: io.Discard})
	return err == nil && code == 0
}

// receive lets take read what tar writes. Both have ended when it returns.
func (t *tarCall) receive(ctx context.Context, take func(io.Reader) error, args ...string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	from, to := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := t.run(ctx, nil, to, args...)
		_ = to.CloseWithError(err)
		ended <- err
	}()
	in := &counted{Reader: from}
	err := take(in)
	if err != nil {
		cancel()
	}
	_ = from.CloseWithError(io.ErrClosedPipe)
	said := <-ended
	switch {
	case err == nil && in.any:
		return said
	case said != nil && !errors.Is(said, context.Canceled):
		return said // an archive that breaks off is only what came of it
	case err == nil:
		return errNothing
	}
	return err
}

// send lets give write what tar reads. Both have ended when it returns.
func (t *tarCall) send(ctx context.Context, give func(io.Writer) error, args ...string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	from, to := io.Pipe()
	given := make(chan error, 1)
	go func() {
		err := give(to)
		if err != nil {
			cancel() // tar must not take what there is for all
		}
		_ = to.CloseWithError(err)
		given <- err
	}()
	said := t.run(ctx, from, io.Discard, args...)
	_ = from.CloseWithError(io.ErrClosedPipe)
	err := <-given
	if err != nil && !errors.Is(err, io.ErrClosedPipe) {
		return err
	}
	if said == nil && err != nil {
		return errors.New("tar in the container ended before it had all")
	}
	return said
}
