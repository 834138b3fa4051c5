package doctor_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/agent"
	"github.com/pipeops/pipeops-vm-agent/agent/doctor"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/freeport"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/planetest"
)

func TestExamine_ManifestGrantsAllRights(t *testing.T) {
	env := kubetest.ControlPlane(t)
	opts := in(options(t, planetest.Start(t)), env.Agent)
	opts.Config.StateDir = "" // as in a pod
	report := doctor.Examine(t.Context(), opts)
	requireOnly(t, report)
	assert.Contains(t, finding(t, report, "identity").Detail, "none yet in secret pipeops/pipeops-agent-identity")
	var granted []string
	for _, f := range report.Findings {
		if f.Check == "permissions" {
			granted = append(granted, f.Detail)
		}
	}
	text := strings.Join(granted, "\n")
	assert.Regexp(t, `all \d\d rights in the cluster are granted`, text)
	assert.Regexp(t, `all \d\d rights in its own namespace pipeops are granted`, text)
	assert.Regexp(t, `all \d\d rights in the managed namespace production are granted`, text)
}

func TestExamine_ReportsMissingRights(t *testing.T) {
	env := kubetest.ControlPlane(t)
	role := &rbacv1.ClusterRole{}
	require.NoError(t, env.Client.Get(t.Context(), client.ObjectKey{Name: "pipeops-agent"}, role))
	whole := role.DeepCopy()
	role.Rules = slices.DeleteFunc(role.Rules, func(r rbacv1.PolicyRule) bool {
		return slices.Contains(r.APIGroups, "batch")
	})
	require.NoError(t, env.Client.Update(t.Context(), role))
	t.Cleanup(func() {
		whole.ResourceVersion = ""
		require.NoError(t, env.Client.Update(context.Background(), whole))
	})
	// The API server takes the role up a moment later.
	var missing []string
	opts := in(options(t, planetest.Start(t)), env.Agent)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, harness.Eventually(ctx, "the rights are gone", func(ctx context.Context) error {
		missing = nil
		for _, f := range doctor.Examine(ctx, opts).Findings {
			if f.Check == "permissions" && f.Status == doctor.Failed {
				missing = append(missing, f.Detail)
				assert.Contains(t, f.Fix, "kubectl apply -f agent.yaml")
			}
		}
		if len(missing) != 4 {
			return fmt.Errorf("missing: %v", missing)
		}
		return nil
	}))
	assert.ElementsMatch(t, []string{
		"may not list jobs.batch in the cluster", "may not watch jobs.batch in the cluster",
		"may not list cronjobs.batch in the cluster", "may not watch cronjobs.batch in the cluster",
	}, missing)
}

func TestExamine_ClusterUnavailable(t *testing.T) {
	env := kubetest.ControlPlane(t)
	opts := options(t, planetest.Start(t))
	report := doctor.Examine(t.Context(), in(opts, &rest.Config{Host: "https://" + freeport.Address(t)}))
	requireOnly(t, report, "kubernetes")
	assert.Contains(t, finding(t, report, "kubernetes").Detail, "does not answer")
	assert.Equal(t, doctor.Skipped, finding(t, report, "resource").Status)

	stranger := rest.AnonymousClientConfig(env.Admin)
	stranger.BearerToken = "nobody"
	report = doctor.Examine(t.Context(), in(opts, stranger))
	requireOnly(t, report, "kubernetes")
	assert.Contains(t, finding(t, report, "kubernetes").Detail, "does not accept the credentials")
}

// runAgent runs an agent in this process until end is called, or the test ends.
func runAgent(t *testing.T, opts doctor.Options) (end func()) {
	t.Helper()
	opts.Config.HealthAddress = "127.0.0.1:0"
	a, err := agent.New(agent.Options{Config: opts.Config, Version: "test", Log: zerolog.Nop(), Kubernetes: opts.Kubernetes})
	require.NoError(t, err)
	return await.Background(t, "the agent", a.Run)
}

// TestExamine_RunningAgent sees its identity, and leaves it its tunnel.
func TestExamine_RunningAgent(t *testing.T) {
	env, p := kubetest.ControlPlane(t), planetest.Start(t)
	opts := in(options(t, p), env.Agent)
	end := runAgent(t, opts)
	id := p.AwaitOnline(t, time.Time{})

	report := doctor.Examine(t.Context(), opts)
	requireOnly(t, report)
	assert.Contains(t, finding(t, report, "identity").Detail, "agent "+id)
	assert.Contains(t, finding(t, report, "registration").Detail, "accepts agent "+id)
	assert.Contains(t, finding(t, report, "tunnel").Detail, "accepts the agent's certificate")
	assert.Contains(t, finding(t, report, "token").Detail, "no longer accepted", "its one use is taken")
	assert.Equal(t, id, p.AwaitOnline(t, time.Time{}))

	report = doctor.ExamineRunning(t.Context(), opts)
	requireOnly(t, report)
	assert.Contains(t, finding(t, report, "permissions").Detail, "are granted")
	assert.False(t, slices.ContainsFunc(report.Findings, func(f doctor.Finding) bool { return f.Check == "tunnel" }), "heartbeats prove it")
	await.Until(t, "the agent reports its own checks", func() bool {
		found, err := p.Agents.Get(t.Context(), id, 0)
		require.NoError(t, err)
		return found.Checks != nil
	})

	end()
	_, err := p.Agents.Revoke(t.Context(), id)
	require.NoError(t, err)
	assert.Contains(t, finding(t, doctor.Examine(t.Context(), opts), "registration").Detail, "revoked")
}

// TestExamine_PendingApproval: doctor asks with the key that the agent has stored, and does not use
// the token up.
func TestExamine_PendingApproval(t *testing.T) {
	env, p := kubetest.ControlPlane(t), planetest.Start(t)
	opts := in(options(t, p), env.Agent)
	opts.Config.Token = p.Token(t, administration.TokenOptions{TTL: time.Hour, Uses: 1, Approve: true})
	report := doctor.Examine(t.Context(), opts)
	requireOnly(t, report)
	assert.Contains(t, finding(t, report, "token").Detail, "an operator approves them")

	runAgent(t, opts)
	var list []store.Enrolment
	await.Until(t, "it waits", func() (waits bool) {
		var err error
		list, err = p.Enrolments.List(t.Context())
		require.NoError(t, err)
		return len(list) == 1
	})
	report = doctor.Examine(t.Context(), opts)
	requireOnly(t, report, "token")
	assert.Contains(t, finding(t, report, "token").Detail, "waits for approval")
	assert.Contains(t, finding(t, report, "token").Fix, "pipeops-controlplane agent approve "+list[0].ID)

	_, err := p.Enrolments.Deny(t.Context(), list[0].ID, "not ours")
	require.NoError(t, err)
	assert.Contains(t, finding(t, doctor.Examine(t.Context(), opts), "token").Detail, "denied this agent's registration: not ours")
	_, err = p.Enrolments.Approve(t.Context(), list[0].ID)
	require.NoError(t, err)
	assert.Contains(t, finding(t, doctor.Examine(t.Context(), opts), "token").Detail, "is approved")
}
