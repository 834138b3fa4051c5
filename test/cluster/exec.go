package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// KubectlCommand returns kubectl as the cluster's administrator, to be run by the caller.
func (c *Cluster) KubectlCommand(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.state.Hyperkube, append([]string{"kubectl"}, args...)...)
	// kubectl would take NODE_IP for a host behind the proxy.
	noProxy := strings.Trim(os.Getenv("NO_PROXY")+","+c.NodeIP(), ",")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig(), "NO_PROXY="+noProxy, "no_proxy="+noProxy)
	return cmd
}

// Kubectl runs kubectl and returns its output. An error contains kubectl's messages.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) ([]byte, error) {
	return c.KubectlWith(ctx, "", args...)
}

// KubectlWith is like Kubectl with a standard input.
func (c *Cluster) KubectlWith(ctx context.Context, input string, args ...string) ([]byte, error) {
	cmd := c.KubectlCommand(ctx, args...)
	cmd.Stdin = strings.NewReader(input)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.Bytes(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.Bytes(), nil
}

// ExecCommand returns a command within the cluster's namespaces.
func (c *Cluster) ExecCommand(ctx context.Context, args ...string) *exec.Cmd {
	nsenter := []string{
		"--target", strconv.Itoa(c.InitPID()), "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--",
	}
	return exec.CommandContext(ctx, "nsenter", append(nsenter, args...)...)
}
