package server

import (
	"context"
	"encoding/json"
	"io"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/wire"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
)

// execution is an exec call: it connects a command's streams to channels.
type execution struct {
	command runnerapi.Execution
	streams runnerapi.ExecStreams
	stdin   *io.PipeReader
	toStdin *io.PipeWriter
	sizes   chan runnerapi.TerminalSize
	// recording is nil if the session is not recorded.
	recording backend.Recording
}

func newExecution(c *wire.Channels, opts runnerapi.ExecOptions, command runnerapi.Execution) *execution {
	e := &execution{command: command, sizes: make(chan runnerapi.TerminalSize, 1)}
	e.stdin, e.toStdin = io.Pipe()
	e.streams.Stdout = c.Writer(wire.ChannelOut)
	if opts.Stdin {
		e.streams.Stdin = e.stdin
	}
	if opts.TTY {
		e.streams.Resize = e.sizes
	} else {
		e.streams.Stderr = c.Writer(wire.ChannelErr)
	}
	return e
}

// record has all output recorded before it is sent.
func (e *execution) record(r backend.Recording) {
	e.recording = r
	e.streams.Stdout = io.MultiWriter(r.Output(), e.streams.Stdout)
	if e.streams.Stderr != nil {
		e.streams.Stderr = io.MultiWriter(r.Output(), e.streams.Stderr)
	}
}

func (e *execution) take(channel byte, p []byte, ended bool) error {
	switch {
	case channel == wire.ChannelIn && ended:
		return e.toStdin.Close()
	case channel == wire.ChannelIn && e.streams.Stdin != nil:
		_, _ = e.toStdin.Write(p) // as with a pipe, input is lost once the command stops reading
	case channel == wire.ChannelResize:
		e.resize(p)
	}
	return nil
}

// resize keeps the newest size until the command takes it.
func (e *execution) resize(text []byte) {
	var size runnerapi.TerminalSize
	if json.Unmarshal(text, &size) != nil || size.Width == 0 || size.Height == 0 {
		return
	}
	select {
	case <-e.sizes:
	default:
	}
	if e.recording != nil {
		e.recording.Resize(size)
	}
	e.sizes <- size // this is the only sender, so there is room
}

func (e *execution) run(ctx context.Context) (code int, err error) {
	if e.recording == nil {
		return e.runCommand(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	recording, stop := context.WithCancel(context.WithoutCancel(ctx))
	stored := make(chan error, 1)
	go func() {
		err := e.recording.Run(recording)
		cancel(err)
		stored <- err
	}()
	defer func() { // after a panic too
		stop()
		if failed := <-stored; failed != nil {
			code, err = 0, failed
		}
	}()
	return e.runCommand(ctx)
}

func (e *execution) runCommand(ctx context.Context) (int, error) {
	// The goroutines that wait in take, or for the caller's input, end with the command.
	defer func() { _ = e.stdin.CloseWithError(io.ErrClosedPipe) }()
	defer context.AfterFunc(ctx, func() { _ = e.toStdin.CloseWithError(context.Cause(ctx)) })()
	return e.command(ctx, e.streams)
}
