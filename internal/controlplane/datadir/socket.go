package datadir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
)

const (
	// fileSocket is where the control plane that serves the directory takes operators' calls of
	// this machine.
	fileSocket = "operators.sock"
	// maxSocketPath is how long the path of a socket may be, in bytes. The kernel has room for one
	// more, which ends it.
	maxSocketPath = 107
)

// Socket returns the path of the socket for operators' calls.
func (d Data) Socket() string { return filepath.Join(d.Dir, fileSocket) }

// ListenSocket listens at the socket. The caller has the directory's lock, so a socket that is
// there is a former control plane's.
func (d Data) ListenSocket(ctx context.Context) (net.Listener, error) {
	path := d.Socket()
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("the path of %s has more than %d bytes; choose a data directory with a shorter path", path, maxSocketPath)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	return ln, nil
}

// NoCredentialsError is the error where neither credentials nor a control plane are at hand.
type NoCredentialsError string

func (e NoCredentialsError) Error() string { return string(e) }

// DialSocket connects to the control plane that serves the directory on this machine. The error
// names what to do instead.
func (d Data) DialSocket(ctx context.Context) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", d.Socket())
	switch {
	case err == nil:
		return conn, nil
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("this user may not use the data directory %s (fix: become root or the user of the control plane, "+
			"or use an operator's credentials: --credentials FILE, or `pipeops-controlplane login FILE` once)", d.Dir)
	case errors.Is(err, fs.ErrNotExist) && !d.Made() && !d.Has(FileCA):
		return nil, NoCredentialsError(fmt.Sprintf("no operator's credentials were given, and %s is not the data directory of a control plane on this machine "+
			"(fix: give --credentials FILE, or `pipeops-controlplane login FILE` once; on the control plane's machine, start `pipeops-controlplane serve`, or name its directory with --data-dir)", d.Dir))
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("no control plane serves %s (fix: start `pipeops-controlplane serve`, or see its log; "+
			"use an operator's credentials for one that serves elsewhere; or add --offline to work on the data directory itself)", d.Dir)
	}
	return nil, fmt.Errorf("the control plane that serves %s: %w", d.Dir, err)
}
