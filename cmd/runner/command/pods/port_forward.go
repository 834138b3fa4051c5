package pods

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/appform"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// maxForwards bounds how many connections are forwarded at a time. More wait.
const maxForwards = 128

// portForward listens on this machine for ports of a pod.
type portForward struct {
	*cmdutil.CLI
	namespace, pod, address string
}

// portPair is a local port and a port of the pod.
type portPair struct{ local, remote int32 }

// NewPortForward returns the command port-forward.
func NewPortForward(a *cmdutil.CLI) *cobra.Command {
	c := &portForward{CLI: a}
	cmd := &cobra.Command{
		Use:   "port-forward [AGENT] NAME [LOCAL:]PORT... [flags] [-- COMMAND [ARGUMENT...]]",
		Short: "Forward local ports to a pod of an App",
		Long: `Listen on this machine and forward each connection to a port of an App's pod, until interrupted.

Without LOCAL, the local port is PORT. With ":PORT", the command takes any free port and prints
it. The pod does not need to declare the port.

With a command after --, forwarding lasts until that command ends, and exits as that command did.
The command finds the first local port in the environment variable PORT.

The cluster owner's policy must name the command port-forward-app: nothing else allows it. The
command ends at the first connection that the policy refuses.`,
		Example: "  pipeops-runner port-forward shop web 8080\n  pipeops-runner port-forward shop db 15432:5432\n" +
			`  pipeops-runner port-forward shop web :8080 -- sh -c 'curl -fsS "http://127.0.0.1:$PORT/"'`,
		Args:              cmdutil.BeforeDash(portArgs),
		ValidArgsFunction: a.CompleteApp,
		RunE: func(cmd *cobra.Command, args []string) error {
			args, command := cmdutil.SplitArgs(cmd, args)
			pairs, err := parsePorts(args[2:])
			if err != nil {
				return cli.Usage(err)
			}
			return a.On(cmd.Context(), args[0], func(ctx context.Context, t *cmdutil.Target) error {
				return c.run(ctx, t, runnerapi.Key{Namespace: c.namespace, Name: args[1]}, pairs, command)
			})
		},
	}
	cmdutil.NamespaceFlag(cmd, &c.namespace)
	podFlags(cmd, &c.pod)
	cmd.Flags().StringVar(&c.address, "address", "127.0.0.1", "address to listen on; every client that reaches it reaches the pod")
	return cmd
}

// portArgs takes a second argument that is a port for one: AGENT was left out.
func portArgs(_ *cobra.Command, args []string) error {
	if len(args) < 3 {
		return cli.Usage(errors.New("port-forward takes AGENT NAME PORT..., as in: port-forward shop web 8080"))
	}
	if _, err := parsePorts(args[1:2]); err == nil {
		return cli.Usage(fmt.Errorf("%q is a port where NAME is expected, as in: port-forward shop web 8080", args[1]))
	}
	return nil
}

func parsePorts(texts []string) ([]portPair, error) {
	pairs := make([]portPair, len(texts))
	for i, text := range texts {
		local, remote, two := strings.Cut(text, ":")
		if !two {
			remote = local
		}
		var err error
		if pairs[i].remote, err = appform.ParsePortNumber(remote); err == nil && local != "" {
			pairs[i].local, err = appform.ParsePortNumber(local)
		}
		if err != nil {
			return nil, fmt.Errorf("%q is not [LOCAL:]PORT, with ports from 1 to 65535", text)
		}
	}
	return pairs, nil
}

func (c *portForward) run(ctx context.Context, t *cmdutil.Target, key runnerapi.Key, pairs []portPair, command []string) error {
	// Otherwise the first connection would report it, which has to do for a Runner that may not
	// read Apps.
	app, err := t.Apps().Get(ctx, key)
	if problem.Is(err, runnerapi.CodeNotFound) {
		return cmdutil.At(t, key.String(), err)
	}
	for _, p := range pairs {
		if app.Spec.UDPOnly(p.remote) {
			return cli.Usage(fmt.Errorf("port %d of %s is for UDP, which is not forwarded; name a port for TCP", p.remote, key))
		}
	}
	ctx, end := context.WithCancelCause(ctx)
	var work sync.WaitGroup
	defer work.Wait()
	defer end(nil)
	refuse := func(err error) { end(&refusedError{cmdutil.At(t, key.String(), err)}) }
	first := 0
	for _, p := range pairs {
		ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(c.address, strconv.Itoa(int(p.local))))
		if err != nil {
			return fmt.Errorf("%w; choose another port here: OTHER:%d", err, p.remote)
		}
		context.AfterFunc(ctx, func() { _ = ln.Close() })
		local := ln.Addr().(*net.TCPAddr).Port
		first = cmp.Or(first, local)
		c.Say("%s goes to port %d of %s on %s", ln.Addr(), p.remote, key, t)
		work.Go(func() { c.serve(ctx, t, key, int(p.remote), ln, refuse) })
	}
	if len(command) > 0 {
		err = c.during(ctx, command, first)
	} else {
		<-ctx.Done()
	}
	if refused, ok := errors.AsType[*refusedError](context.Cause(ctx)); ok {
		return refused.error
	}
	return err
}

// refusedError is a refusal of the policy or of the credentials. It ends the command: every other
// connection would be refused as well.
type refusedError struct{ error }

// during runs a command while the ports are forwarded.
func (c *portForward) during(ctx context.Context, command []string, port int) error {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.In, c.Out, c.Err
	cmd.Env = append(os.Environ(), "PORT="+strconv.Itoa(port))
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 5 * time.Second
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() > 0 {
		return &cmdutil.ExitError{Err: err, Code: exit.ExitCode(), Told: true}
	}
	return err
}

// serve forwards the connections of one listener until it is closed.
func (c *portForward) serve(ctx context.Context, t *cmdutil.Target, key runnerapi.Key, port int, ln net.Listener, refuse func(error)) {
	var work sync.WaitGroup
	defer work.Wait()
	places := make(chan struct{}, maxForwards)
	for {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return
		}
		conn, err := ln.Accept()
		if err != nil {
			if ctx.Err() == nil {
				c.Say("cannot take connections any more: %v", err)
			}
			return
		}
		work.Go(func() {
			defer func() { <-places }()
			switch err := c.forward(ctx, t, key, port, conn.(*net.TCPConn)); {
			case err == nil || ctx.Err() != nil:
			case cmdutil.IsRefused(err):
				refuse(err)
			default:
				c.Say("a connection to port %d failed: %v", port, problemText(err))
			}
		})
	}
}

// problemText returns an error with its fix, in one line.
func problemText(err error) string {
	if known, ok := errors.AsType[*problem.Error](err); ok && known.Fix != "" {
		return known.Detail + " (fix: " + known.Fix + ")"
	}
	return err.Error()
}

func (c *portForward) forward(ctx context.Context, t *cmdutil.Target, key runnerapi.Key, port int, near *net.TCPConn) error {
	defer func() { _ = near.Close() }()
	far, err := t.Apps().PortForward(ctx, key, runnerapi.PortForwardOptions{Port: port, Pod: c.pod})
	if err != nil {
		return err
	}
	defer func() { _ = far.Close() }()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = io.Copy(far, near)
		_ = far.CloseWrite()
	}()
	_, err = io.Copy(near, far)
	_ = near.CloseWrite()
	if err != nil { // nothing more comes from here: the other side is gone
		_, _ = near.Close(), far.Close()
	}
	<-sent
	return err
}
