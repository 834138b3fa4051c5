package main

import (
	"bytes"
	"errors"
	"os/exec"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/cluster"
)

// execute runs the command with a cache of its own, in which there is nothing.
func execute(t *testing.T, args ...string) (string, error) {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	cmd := newCommand()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestClusterCommand_NoCluster(t *testing.T) {
	for _, args := range [][]string{
		{"status"}, {"kubeconfig"}, {"kubectl", "--", "get", "pods"}, {"exec", "--", "true"},
		{"load-image", "file.tar"}, {"load-app", "hello"},
	} {
		_, err := execute(t, args...)
		require.ErrorIs(t, err, cluster.ErrNotFound, args)
		require.ErrorContains(t, err, "cluster dev")
	}
	out, err := execute(t, "list")
	require.NoError(t, err)
	require.Equal(t, "NAME   STATUS   NODE IP   AGE   KUBECONFIG\n", out)
	for _, args := range [][]string{{"down"}, {"down", "--all"}} {
		_, err := execute(t, args...)
		require.NoError(t, err, "there is nothing to remove")
	}
}

func TestClusterCommand_Refuses(t *testing.T) {
	_, err := execute(t, "up", "--without", "network")
	require.ErrorContains(t, err, "there is only dns and metrics")
	_, err = execute(t, "up", "--name", "Not/Valid")
	require.ErrorContains(t, err, "lower-case letters")
	_, err = execute(t, "kubectl")
	require.Error(t, err)
}

func TestClusterCommand_ExitCode(t *testing.T) {
	var out bytes.Buffer
	cmd := &cobra.Command{}
	cmd.SetOut(&out)
	err := attached(cmd, exec.CommandContext(t.Context(), "sh", "-c", "echo said; exit 4"))
	var exit *exec.ExitError
	require.True(t, errors.As(err, &exit))
	require.Equal(t, 4, exit.ExitCode())
	require.Equal(t, "said\n", out.String())
}
