package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	podRuns = "deployment 1 1 1 1 0 1 1\nreplicaset abc 1\npod agent-x abc Running 0 -\n"
	pending = `{"level":"warn","code":"approval_pending","fix":"on the control plane: ` + "`pipeops-controlplane agent approve x3f2k7aabbccddee`" + `","message":"the registration of shop waits for approval"}` + "\n"
	denied  = `{"level":"warn","code":"enrolment_denied","fix":"ask the operator of the control plane, who can still do ` + "`pipeops-controlplane agent approve x3f2k7aabbccddee`" + `","message":"the registration of shop was denied"}` + "\n"
	issued  = `{"level":"info","message":"identity issued and stored"}` + "\n"
)

// TestInstall_PendingApproval names the command that approves the agent.
func TestInstall_PendingApproval(t *testing.T) {
	const command = "pipeops-controlplane agent approve x3f2k7aabbccddee"
	for name, c := range map[string]struct {
		logs, phase string
		says        []string
	}{
		"it registers":      {"", "running, registering with the control plane", nil},
		"it waits":          {pending, "waiting for approval: on the control plane, " + command, []string{"an operator approves", "fix: on the control plane: " + command + ";"}},
		"it was denied":     {pending + denied, "denied by the operator", []string{"the operator of the control plane has denied it", "fix: ask the operator, who can still do: " + command}},
		"it was let in":     {pending + issued, "running, registering with the control plane", nil},
		"it says odd words": {`{"code":"approval_pending","fix":"agent approve $(reboot)"}`, "waiting for approval", []string{"fix: on the control plane: pipeops-controlplane agent list;"}},
	} {
		t.Run(name, func(t *testing.T) {
			said, code := bash(t, `
running() {
  case "$*" in
    *" logs "*) printf '%s' "$LOGS" ;;
    *) printf '%s' "$PODS" ;;
  esac
}
kube=(running)
agent_await || agent_failed`, "PODS="+podRuns, "LOGS="+c.logs, "PIPEOPS_WAIT=0")
			require.Equal(t, 9, code, said)
			assert.Contains(t, said, "    "+c.phase+" (")
			for _, words := range c.says {
				assert.Contains(t, said, words)
			}
		})
	}
}
