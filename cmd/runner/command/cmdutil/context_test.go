package cmdutil

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
)

// contexts writes a file of contexts, of which the first one is the current one.
func contexts(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	for _, name := range []string{EnvCredentials, EnvContext, EnvAgent} {
		t.Setenv(name, "")
	}
	file := filepath.Join(dir, "pipeops", "contexts.yaml")
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
	require.NoError(t, os.WriteFile(file, []byte("currentContext: now\ncontexts:\n"+
		"- {name: now, credentials: now.json, agent: shop, namespace: staging}\n- {name: other, credentials: other.json}\n"), 0o600))
}

// TestDefaults checks what wins: a flag, then a variable, then the context.
func TestDefaults(t *testing.T) {
	for name, c := range map[string]struct {
		flags                         Defaults
		env                           map[string]string
		credentials, agent, namespace string
	}{
		"current context":        {Defaults{}, nil, "now.json", "shop", "staging"},
		"credentials flag":       {Defaults{Credentials: "f.json"}, map[string]string{EnvCredentials: "e.json"}, "f.json", "", "production"},
		"credentials variable":   {Defaults{}, map[string]string{EnvCredentials: "e.json"}, "e.json", "", "production"},
		"context flag":           {Defaults{Context: "other"}, map[string]string{EnvContext: "now", EnvCredentials: "e.json"}, "other.json", "", "production"},
		"context variable":       {Defaults{}, map[string]string{EnvContext: "other"}, "other.json", "", "production"},
		"both flags":             {Defaults{Context: "now", Credentials: "f.json"}, nil, "f.json", "shop", "staging"},
		"credentials of another": {Defaults{}, map[string]string{EnvCredentials: "e.json", EnvContext: "now"}, "e.json", "shop", "staging"},
		"agent variable":         {Defaults{}, map[string]string{EnvAgent: "desk"}, "now.json", "desk", "staging"},
	} {
		t.Run(name, func(t *testing.T) {
			contexts(t)
			for k, v := range c.env {
				t.Setenv(k, v)
			}
			file, err := c.flags.CredentialsFile()
			require.NoError(t, err)
			agent, err := c.flags.DefaultAgent()
			require.NoError(t, err)
			cmd, namespace := &cobra.Command{}, ""
			NamespaceFlag(cmd, &namespace)
			require.NoError(t, c.flags.UseContext(cmd))
			assert.Equal(t, []string{c.credentials, c.agent, c.namespace}, []string{filepath.Base(file), agent, namespace})
			require.NoError(t, cmd.Flags().Set("namespace", "typed"))
			require.NoError(t, c.flags.UseContext(cmd))
			assert.Equal(t, "typed", namespace)
		})
	}
	_, err := (&Defaults{Context: "missing"}).CredentialsFile()
	assert.Equal(t, ExitUsage, exitCode(t.Context(), err))
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	_, err = (&Defaults{}).CredentialsFile()
	assert.EqualError(t, err, "no credentials were given")
}

func TestAgentOptional(t *testing.T) {
	for line, want := range map[string]string{
		"desk web": "desk web", "web": "shop web", "-l env=prod web": " web",
		"": "error", "a b c": "error", "-l env=prod desk web": "error", // both of them
	} {
		contexts(t)
		var got string
		cmd := &cobra.Command{
			Use: "status AGENT NAME", Args: cli.ExactArgs("AGENT", "NAME"), SilenceErrors: true, SilenceUsage: true,
			RunE: func(_ *cobra.Command, args []string) error { got = strings.Join(args, " "); return nil },
		}
		new(Fleet).Add(cmd)
		new(Defaults).AgentOptional(cmd)
		cmd.SetArgs(strings.Fields(line))
		if cmd.Execute() != nil {
			got = "error"
		}
		assert.Equal(t, want, got, line)
	}
}

func TestReadLimited(t *testing.T) {
	text, err := cli.ReadLimited("-", strings.NewReader("1234"), 4)
	require.NoError(t, err)
	assert.Equal(t, "1234", string(text))
	_, err = cli.ReadLimited("-", strings.NewReader("12345"), 4)
	assert.EqualError(t, err, "-: has more than 4 bytes")
}
