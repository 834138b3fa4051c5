package browser

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/netip"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"github.com/armon/go-socks5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// gate is the proxy's address in the browser's network.
const gate = "127.0.0.1:1080"

var errNotLoopback = errors.New("a test's browser reaches loopback alone")

// apart starts a browser in its own network namespace. Chromium closes its connections when an
// interface of its machine changes, and tests beside this one make networks for pods.
func apart(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
}

// openGate lets the browser with this process ID reach servers on the loopback of the tests, and
// nothing else.
func openGate(t *testing.T, browser int) {
	t.Helper()
	listener, err := listenBeside(browser)
	require.NoError(t, err)
	proxy, err := socks5.New(&socks5.Config{Resolver: addresses{}, Dial: dialLoopback, Logger: log.New(io.Discard, "", 0)})
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- proxy.Serve(listener) }()
	t.Cleanup(func() {
		assert.NoError(t, listener.Close())
		assert.ErrorIs(t, <-served, net.ErrClosed)
	})
}

// listenBeside listens in the network namespace of a process.
func listenBeside(pid int) (net.Listener, error) {
	type result struct {
		listener net.Listener
		err      error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine
		l, err := enterAndListen(pid)
		done <- result{l, err}
	}()
	r := <-done
	return r.listener, r.err
}

// enterAndListen moves its thread into a process' network namespace.
func enterAndListen(pid int) (net.Listener, error) {
	ns, err := unix.Open(fmt.Sprintf("/proc/%d/ns/net", pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the browser's network namespace: %w", err)
	}
	defer func() { _ = unix.Close(ns) }()
	if err := unix.Setns(ns, unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("enter the browser's network namespace: %w", err)
	}
	if err := loopbackUp(); err != nil {
		return nil, fmt.Errorf("switch loopback on: %w", err)
	}
	return new(net.ListenConfig).Listen(context.Background(), "tcp", gate)
}

// loopbackUp switches on the loopback of the thread's network namespace (netdevice(7)).
func loopbackUp() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(s) }()
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, lo)
}

// addresses refuses names. Chromium sends an address as if it were a name.
type addresses struct{}

func (addresses) Resolve(ctx context.Context, name string) (context.Context, net.IP, error) {
	if ip := net.ParseIP(name); ip != nil {
		return ctx, ip, nil
	}
	return ctx, nil, errNotLoopback
}

func dialLoopback(ctx context.Context, network, addr string) (net.Conn, error) {
	to, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, err
	}
	if !to.Addr().IsLoopback() {
		return nil, errNotLoopback
	}
	var d net.Dialer
	return d.DialContext(ctx, network, addr)
}
