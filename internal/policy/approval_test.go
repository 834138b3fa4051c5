package policy_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/policy"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// TestApproval_Required expects none for reads.
func TestApproval_Required(t *testing.T) {
	p := load(t, `
rules:
  - name: careful
    namespaces: [shop]
    commands: ["*", exec-app, kubernetes-api]
    kubernetes: {user: dev}
    images: [registry.example.com]
    approval: 10m
  - name: rest
`)
	request := func(verb, resource string) runnerapi.Intent { return request("ci", "shop", verb, resource) }
	for _, i := range []runnerapi.Intent{intent("ci", "delete-app", "shop"), intent("ci", "exec-app", "shop"), request("delete", "pods"), request("get", "pods/exec")} {
		err := p.Decide(i)
		e := &problem.Error{}
		require.ErrorAs(t, err, &e, i.Command)
		assert.Equal(t, runnerapi.CodeApprovalRequired, e.Code)
		assert.Contains(t, e.Detail, `rule "careful"`)
		assert.Equal(t, 10*time.Minute, p.Approval(i))
		i.Approved = true
		require.NoError(t, p.Decide(i), "an approval is enough")
	}
	for _, i := range []runnerapi.Intent{intent("ci", "get-app", "shop"), intent("ci", "delete-app", "web"), request("list", "pods")} {
		require.NoError(t, p.Decide(i), i.Command)
		assert.Zero(t, p.Approval(i))
	}
	i := intent("ci", "put-app", "shop")
	i.App, i.Approved = &runnerapi.AppSpec{Image: "nginx"}, true
	assert.Contains(t, refusal(t, p.Decide(i)).Detail, "images", "an approval lifts no bound")
}

func TestApproval_Expires(t *testing.T) {
	for text, sound := range map[string]bool{"1m": true, "24h": true, "59s": false, "24h1s": false, "soon": false, "-10m": false} {
		_, err := policy.Parse([]byte("rules: [{name: a, approval: " + text + "}]"))
		e := &problem.Error{}
		assert.Equal(t, sound, err == nil, text)
		if errors.As(err, &e) {
			assert.Equal(t, "rules[0].approval", e.Field)
		}
	}
}
