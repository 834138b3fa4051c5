package runnertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// program runs until it ends, with an exit code.
type program func(ctx context.Context, args []string, s runnerapi.ExecStreams) (int, error)

// commands are the programs in the fake's containers.
var commands = map[string]program{
	// cat copies its input.
	"cat": func(_ context.Context, _ []string, s runnerapi.ExecStreams) (int, error) {
		_, err := io.Copy(s.Stdout, s.Stdin)
		return 0, err
	},
	// hush reads its input and writes nothing of it.
	"hush": func(_ context.Context, _ []string, s runnerapi.ExecStreams) (int, error) {
		_, err := io.Copy(io.Discard, s.Stdin)
		return 0, err
	},
	// exit ends with the given code after a word on both streams.
	"exit": func(_ context.Context, args []string, s runnerapi.ExecStreams) (int, error) {
		code, err := strconv.Atoi(args[0])
		_, _ = io.WriteString(s.Stdout, "out")
		_, _ = io.WriteString(s.Stderr, "err")
		return code, err
	},
	// size prints each size of the terminal until it is one character wide.
	"size": func(ctx context.Context, _ []string, s runnerapi.ExecStreams) (int, error) {
		for {
			select {
			case size := <-s.Resize:
				if _, err := fmt.Fprintf(s.Stdout, "%dx%d\r\n", size.Width, size.Height); err != nil || size.Width == 1 {
					return 0, err
				}
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}
	},
	// flood writes until the reader is gone.
	"flood": func(ctx context.Context, _ []string, s runnerapi.ExecStreams) (int, error) {
		for ctx.Err() == nil {
			if _, err := s.Stdout.Write(make([]byte, 64<<10)); err != nil {
				return 0, err
			}
		}
		return 0, ctx.Err()
	},
	// hang does nothing and reads nothing.
	"hang": func(ctx context.Context, _ []string, _ runnerapi.ExecStreams) (int, error) {
		<-ctx.Done()
		return 0, ctx.Err()
	},
	// panic is a bug.
	"panic": func(context.Context, []string, runnerapi.ExecStreams) (int, error) { panic("a bug") },
}

// Inside returns how many commands and connections are open in the fake's containers.
func (b *FakeBackend) Inside() int { return int(b.inside.Load()) }

// Exec implements backend.Sessions. The programs are those of commands.
func (b fakeApps) Exec(ctx context.Context, key runnerapi.Key, opts runnerapi.ExecOptions) (runnerapi.Execution, error) {
	if err := b.reach(ctx, "Apps.Exec", key); err != nil {
		return nil, err
	}
	run, ok := b.program(opts.Command[0])
	if !ok {
		return nil, problem.Errorf(problem.Invalid, "give a program that is in the image", "there is no program %q", opts.Command[0]).WithField("query.command")
	}
	return func(ctx context.Context, s runnerapi.ExecStreams) (int, error) {
		b.inside.Add(1)
		defer b.inside.Add(-1)
		return run(ctx, opts.Command[1:], s)
	}, nil
}

func (b *FakeBackend) reach(ctx context.Context, verb string, key runnerapi.Key) error {
	if err := b.enter(ctx, Call{Verb: verb, Key: key}); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	_, err := b.get(key)
	return err
}

// PortForward implements backend.Sessions. Port 7 echoes all that it is sent. Port 9 reads
// nothing. All other ports are closed.
func (b fakeApps) PortForward(ctx context.Context, key runnerapi.Key, opts runnerapi.PortForwardOptions) (runnerapi.Forwarding, error) {
	if err := b.reach(ctx, "Apps.PortForward", key); err != nil {
		return nil, err
	}
	return func(ctx context.Context, conn runnerapi.HalfCloser) error {
		b.inside.Add(1)
		defer b.inside.Add(-1)
		switch opts.Port {
		case 7:
			_, err := io.Copy(conn, conn)
			return errors.Join(err, conn.CloseWrite())
		case 9:
			<-ctx.Done()
			return ctx.Err()
		}
		return problem.Errorf(problem.Unavailable, "see what the App listens on", "nothing listens on port %d", opts.Port)
	}, nil
}
