package service

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/machine"
)

// patience is how long a test waits for what takes seconds.
const patience = 5 * time.Minute

// server is a booted machine on this machine's network, so that it reaches what
// the test has started.
type server struct {
	*machine.Machine
	unit string // its service
	logs string // shows what the service did, for a test that failed
}

// boot boots a machine, which ends with the test.
func boot(t *testing.T, suite, logs string, shares ...string) *server {
	t.Helper()
	m, err := machine.Boot(t.Context(), machine.Options{Name: "pipeops-service", Suite: suite, Shares: shares})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Down()) })
	return &server{m, "pipeops-agent", logs}
}

// run runs a shell script in the machine and answers what it printed.
func (s *server) run(ctx context.Context, stdin, script string, env ...string) (string, error) {
	cmd := s.Command(ctx, append(append([]string{"env"}, env...), "/bin/sh", "-euc", script)...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// must is run for what has to work.
func (s *server) must(t *testing.T, script string, env ...string) string {
	t.Helper()
	return s.mustWith(t, "", script, env...)
}

func (s *server) mustWith(t *testing.T, stdin, script string, env ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out, err := s.run(ctx, stdin, script, env...)
	if err != nil {
		log, _ := s.run(context.WithoutCancel(ctx), "", s.logs)
		require.NoError(t, err, "%s\n%s\n%s", script, out, log)
	}
	return out
}

func (s *server) await(t *testing.T, what string, ok func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, harness.Eventually(ctx, what, ok))
}

// property is one of systemd's about the service.
func (s *server) property(t *testing.T, name string) string {
	t.Helper()
	return strings.TrimSpace(s.must(t, "systemctl show --value -p "+name+" "+s.unit))
}
