package proc

import (
	"errors"
	"io"
	"net/rpc"
	"os"
	"os/exec"
)

// StartServing is like Start for a process that calls Serve, and also returns a client of it.
func StartServing(name, log string, args ...string) (*Process, *rpc.Client, error) {
	var in io.WriteCloser
	var out io.ReadCloser
	var piped error
	p, err := start(name, log, func(cmd *exec.Cmd) {
		cmd.Stdout = nil
		var errIn, errOut error
		in, errIn = cmd.StdinPipe()
		out, errOut = cmd.StdoutPipe()
		piped = errors.Join(errIn, errOut)
	}, args)
	if err = errors.Join(err, piped); err != nil {
		return nil, nil, err
	}
	return p, rpc.NewClient(pipes{out, in}), nil
}

// Serve serves a receiver's methods (net/rpc) on standard input and output, to their end.
func Serve(receiver any) error {
	srv := rpc.NewServer()
	if err := srv.Register(receiver); err != nil {
		return err
	}
	srv.ServeConn(pipes{os.Stdin, os.Stdout})
	return nil
}

type pipes struct {
	io.ReadCloser
	io.WriteCloser
}

func (p pipes) Close() error { return errors.Join(p.ReadCloser.Close(), p.WriteCloser.Close()) }
