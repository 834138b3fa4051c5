package server_test

import (
	"context"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnertest"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
)

// approvals keeps requests in memory. Its owner approves them.
type approvals struct {
	mu       sync.Mutex
	waiting  map[string]runnerapi.Approval
	approved map[string]bool
}

func (a *approvals) Use(_ context.Context, r backend.ApprovalRequest) (runnerapi.Approval, bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	id := string(r.Bytes)
	if a.approved[id] {
		delete(a.approved, id)
		return a.waiting[id], true, nil
	}
	r.ID = id
	a.waiting[id] = r.Approval
	return r.Approval, false, nil
}

// one returns the only request that was made since.
func (a *approvals) one(t *testing.T, approve bool) (got runnerapi.Approval) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	require.Len(t, a.waiting, 1)
	for id, w := range a.waiting {
		got = w
		if approve {
			a.approved[id] = true
		} else {
			delete(a.waiting, id)
		}
	}
	return got
}

// careful is a fake agent whose policy demands approvals.
func careful(t *testing.T) (*runnertest.Agent, *approvals, *auditor) {
	t.Helper()
	p := policyOf(t, "rules: [{name: careful, approval: 10m, commands: ['*', exec-app, kubernetes-api], kubernetes: {user: dev}}]")
	agent, log := watched(t, p)
	agent.Stop()
	kept := &approvals{waiting: map[string]runnerapi.Approval{}, approved: map[string]bool{}}
	agent.Approvals = kept
	agent.Start()
	return agent, kept, log
}

// A command passes once after its approval, and only with the same body.
func TestApproval_AllowsOneCommand(t *testing.T) {
	agent, kept, log := careful(t)
	c := agent.Client()
	deploy := func(image string) error {
		_, err := c.Apps().Deploy(ctxFor(t), web, runnerapi.AppSpec{Image: image}, runnerapi.WriteOptions{})
		return err
	}
	e := problemOf(t, deploy("a"))
	assert.Equal(t, runnerapi.CodeApprovalRequired, e.Code)
	assert.Equal(t, http.StatusForbidden, e.Status)
	asked := kept.one(t, true)
	assert.Contains(t, e.Fix, "pipeops-agent approve "+asked.ID)
	assert.Equal(t, []string{runnertest.RunnerName, "put-app", web.Namespace, web.Name}, []string{asked.Runner, asked.Command, asked.Namespace, asked.Name})
	assert.Contains(t, string(asked.Request.Body), `"image":"a"`)
	assert.Equal(t, 10*time.Minute, asked.Until.Sub(asked.Asked))
	assert.Equal(t, e.RequestID, asked.RequestID)
	_, err := c.Apps().Get(ctxFor(t), web)
	assert.Equal(t, runnerapi.CodeNotFound, codeOf(t, err), "nothing was carried out, and reads pass")
	r := log.take(t, 1)[0]
	assert.Equal(t, runnerapi.AuditRefused, r.Outcome)
	assert.Empty(t, r.Approval)

	assert.Equal(t, runnerapi.CodeApprovalRequired, codeOf(t, deploy("b")), "it was not approved")
	require.NoError(t, deploy("a"))
	app, err := c.Apps().Get(ctxFor(t), web)
	require.NoError(t, err)
	assert.Equal(t, "a", app.Spec.Image, "the body arrived whole")
	r = log.take(t, 2)[1]
	assert.Equal(t, runnerapi.AuditDone, r.Outcome)
	assert.Equal(t, asked.ID, r.Approval)
	assert.Equal(t, runnerapi.CodeApprovalRequired, codeOf(t, deploy("a")), "an approval is good for once")
}

// The arguments decide what exec does, so the owner sees them.
func TestApproval_ShowsExecCommand(t *testing.T) {
	agent, kept, _ := careful(t)
	c := agent.Client()
	_, err := c.Apps().Deploy(ctxFor(t), web, runnerapi.AppSpec{Image: "a"}, runnerapi.WriteOptions{})
	require.Error(t, err)
	kept.one(t, true)
	_, err = c.Apps().Deploy(ctxFor(t), web, runnerapi.AppSpec{Image: "a"}, runnerapi.WriteOptions{})
	require.NoError(t, err)
	kept.one(t, false)

	exec := func() (int, error) {
		return c.Apps().Exec(ctxFor(t), web, runnerapi.ExecOptions{Command: []string{"exit", "3"}}, runnerapi.ExecStreams{Stdout: io.Discard, Stderr: io.Discard})
	}
	_, err = exec()
	assert.Equal(t, runnerapi.CodeApprovalRequired, codeOf(t, err))
	assert.Equal(t, []string{"exit", "3"}, kept.one(t, true).Request.Query["command"])
	code, err := exec()
	require.NoError(t, err)
	assert.Equal(t, 3, code)
}

func TestApproval_RefusedWithoutStore(t *testing.T) {
	agent, _, _ := careful(t)
	agent.Stop()
	agent.Approvals = nil
	agent.Start()
	_, err := agent.Client().Apps().Deploy(ctxFor(t), web, runnerapi.AppSpec{Image: "a"}, runnerapi.WriteOptions{})
	assert.Equal(t, runnerapi.CodeApprovalRequired, codeOf(t, err))
}

// The owner sees the namespace of a set, and not its objects.
func TestApproval_OnlyForItsNamespace(t *testing.T) {
	p := policyOf(t, `
rules:
  - name: production
    namespaces: [production, shop]
    commands: [apply-manifests]
    kinds: ["*"]
    approval: 10m
  - name: rest
    commands: [apply-manifests]
    kinds: ["*"]
`)
	agent, kept, _ := careful(t)
	agent.Stop()
	agent.Policy = p
	agent.Start()
	apply := func(set, namespace string) error {
		text := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: " + namespace + "}\n"
		_, err := agent.Client().Manifests().Apply(ctxFor(t), runnerapi.Key{Namespace: set, Name: "x"}, []byte(text), runnerapi.ApplyOptions{})
		return err
	}
	assert.Equal(t, runnerapi.CodeApprovalRequired, codeOf(t, apply("shop", "shop")))
	kept.one(t, true)
	require.NoError(t, apply("shop", "shop"))
	kept.one(t, false)

	assert.Equal(t, runnerapi.CodeApprovalRequired, codeOf(t, apply("shop", "production")))
	kept.one(t, true)
	e := problemOf(t, apply("shop", "production"))
	assert.Equal(t, runnerapi.CodeApprovalRequired, e.Code)
	assert.NotContains(t, e.Fix, "pipeops-agent approve")
	require.NoError(t, apply("web", "shared"))
	assert.Equal(t, runnerapi.CodeApprovalRequired, codeOf(t, apply("web", "production")), "by a set of a namespace without approval")
}
