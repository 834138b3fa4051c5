package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// apiServerAway is longer than what a call waits for the Kubernetes API.
const apiServerAway = 40 * time.Second

// TestDeploy_APIServerAway deploys while the cluster's API server does not answer, and expects that
// what pipeops-runner and the audit log say of it is true afterwards.
func TestDeploy_APIServerAway(t *testing.T) {
	suite.Release(t, "commands while the Kubernetes API server is away, by both ways to wait")
	ways := map[string][]string{"away-wait": {"--wait=2m"}, "away-no-wait": {"--no-wait"}}
	for name := range ways {
		removeApp(t, name)
	}
	signal := func(s syscall.Signal) error { return sys.Cluster.SignalComponent("kube-apiserver", s) }
	require.NoError(t, signal(syscall.SIGSTOP))
	t.Cleanup(func() { _ = signal(syscall.SIGCONT) })
	type result struct {
		name string
		err  error
	}
	ended := make(chan result, len(ways))
	for name, wait := range ways {
		args := append([]string{"deploy", agentName, name, "--image", image, "--port", "8080"}, wait...)
		go func() {
			_, err := sys.Runner(t.Context(), runner, args...)
			ended <- result{name, err}
		}()
	}
	back := time.NewTimer(apiServerAway)
	defer back.Stop()
	var all []result
	for away := true; away || len(all) < len(ways); {
		select {
		case <-back.C:
			require.NoError(t, signal(syscall.SIGCONT))
			away = false
		case r := <-ended:
			all = append(all, r)
		}
	}
	for _, r := range all {
		checkOutcome(t, r.name, r.err)
	}
}

// checkOutcome compares the outcome that a deploy reported with the cluster.
func checkOutcome(t *testing.T, name string, told error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	exit, code := &harness.ExitError{}, 0
	if errors.As(told, &exit) {
		code = exit.Code
	}
	require.Contains(t, []int{0, exitUnreachable, exitNoOutcome}, code, "%s: %v", name, told)
	exists := code != exitUnreachable
	require.NoError(t, harness.Eventually(ctx, "App "+name+" is there, or is not, as was told", func(ctx context.Context) error {
		_, err := sys.Runner(ctx, runner, "status", agentName, name)
		is := &harness.ExitError{}
		switch {
		case err == nil && exists, errors.As(err, &is) && is.Code == exitNotFound && !exists:
			return nil
		}
		return fmt.Errorf("exit code %d of the deploy (%w), and now: %w", code, told, err)
	}))
	var outcomes []runnerapi.AuditOutcome
	require.NoError(t, harness.Eventually(ctx, "the audit log has it", func(ctx context.Context) error {
		out, err := sys.Runner(ctx, runner, "audit", agentName, "--limit", "200", "-o", "json")
		if err != nil {
			return err
		}
		var list runnerapi.AuditList
		if err := json.Unmarshal([]byte(out), &list); err != nil {
			return err
		}
		outcomes = nil
		for _, r := range list.Items {
			if r.Command == "put-app" && r.Name == name && r.Outcome != runnerapi.AuditBegun {
				outcomes = append(outcomes, r.Outcome)
			}
		}
		if len(outcomes) == 0 {
			return errors.New("no record yet")
		}
		return nil
	}))
	assert.Equal(t, exists, slices.Contains(outcomes, runnerapi.AuditDone), "%s: exit code %d, audit %v", name, code, outcomes)
}
