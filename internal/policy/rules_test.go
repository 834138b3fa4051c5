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
	"github.com/pipeops/pipeops-vm-agent/test/problemtest"
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
	dry := request("create", "pods")
	dry.Kubernetes.DryRun = true
	for _, i := range []runnerapi.Intent{intent("ci", "delete-app", "shop"), intent("ci", "exec-app", "shop"), request("delete", "pods"), request("get", "pods/exec"), dry} {
		err := p.Decide(i)
		e := problemtest.Of(t, err, i.Command)
		assert.Equal(t, runnerapi.CodeApprovalRequired, e.Code)
		assert.Contains(t, e.Detail, `rule "careful"`)
		assert.Equal(t, 10*time.Minute, p.Approval(i))
		assert.False(t, p.ApprovesUnseen(i))
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

func TestApproval_Unseen(t *testing.T) {
	p := load(t, "rules: [{name: careful, approval: 10m, approveUnseen: true}]")
	assert.True(t, p.ApprovesUnseen(intent("ci", "put-app", "shop")))
	_, err := policy.Parse([]byte("rules: [{name: a, approveUnseen: true}]"))
	assert.Equal(t, "rules[0].approveUnseen", problemtest.Of(t, err, "without approval").Field)
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

// An empty "fetchHosts:" does not mean that every host is allowed. The same holds for any field.
func TestPolicy_NullIsNotAbsent(t *testing.T) {
	for text, field := range map[string]string{
		"fetchHosts: null":                    "fetchHosts",
		"fetchHosts:\n# - charts.example.com": "fetchHosts",
		"fetchHosts: [null]":                  "fetchHosts[0]",
		"rules: ~":                            "rules",
		"rules:":                              "rules",
		"trust:":                              "trust",
		"trust:\n- {runners: null, keys: ['sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08']}": "trust[0].runners",
		"paused:":                                                          "paused",
		"audit:":                                                           "audit",
		"rules: [null]":                                                    "rules[0]",
		"rules: [{name: a, runners: null}]":                                "rules[0].runners",
		"rules: [{name: a, namespaces: null}]":                             "rules[0].namespaces",
		"rules: [{name: a, commands: null}]":                               "rules[0].commands",
		"rules: [{name: a, images: null}]":                                 "rules[0].images",
		"rules: [{name: a, hosts: null}]":                                  "rules[0].hosts",
		"rules: [{name: a, annotations: null}]":                            "rules[0].annotations",
		"rules: [{name: a, placement: null}]":                              "rules[0].placement",
		"rules: [{name: a, kinds: null}]":                                  "rules[0].kinds",
		"rules: [{name: a, lookups: null}]":                                "rules[0].lookups",
		"rules: [{name: a, maxReplicas: null}]":                            "rules[0].maxReplicas",
		"rules: [{name: a, maxResources: null}]":                           "rules[0].maxResources",
		"rules: [{name: a, maxResources: {cpu: null, memory: 1Gi}}]":       "rules[0].maxResources.cpu",
		"rules: [{name: a, approval: null}]":                               "rules[0].approval",
		"rules: [{name: a, deny: null}]":                                   "rules[0].deny",
		"rules: [{name: a, commands: [kubernetes-api], kubernetes: null}]": "rules[0].kubernetes",
	} {
		_, err := policy.Parse([]byte(text))
		refused := problemtest.Of(t, err, text)
		assert.Equal(t, field, refused.Field, text)
		assert.Contains(t, refused.Detail, "remove the field", text)
		_, err = policy.FromConfigMap(map[string]string{"policy.yaml": text})
		assert.Error(t, err, text)
	}
	for _, text := range []string{"", "# nothing but words", "---", "fetchHosts: []", "rules: []"} {
		_, err := policy.Parse([]byte(text))
		assert.NoError(t, err, text)
	}
}

// TestRecord_RequiredForSession has sessions over the Runner API, and over the Kubernetes API,
// which the agent cannot record.
func TestRecord_RequiredForSession(t *testing.T) {
	p := load(t, `
rules:
  - name: watched
    runners: [dev]
    commands: [read, exec-app, port-forward-app, kubernetes-api]
    kubernetes: {user: dev}
    record: true
  - name: free
    commands: [exec-app]
`)
	i := intent("dev", "exec-app", "shop")
	assert.True(t, p.Records(i))
	assert.Contains(t, refusal(t, p.Decide(i)).Detail, "recorded")
	i.Recorded = true
	require.NoError(t, p.Decide(i))
	assert.False(t, p.Records(intent("ops", "exec-app", "shop")), "of another rule")
	assert.False(t, p.Records(intent("ops", "get-app", "shop")), "what is not allowed")
	require.NoError(t, p.Decide(intent("ops", "exec-app", "shop")))
	require.NoError(t, p.Decide(intent("dev", "port-forward-app", "shop")), "a port-forward is not a session")

	for _, resource := range []string{"pods/exec", "pods/attach", "nodes/proxy"} {
		_, err := p.KubernetesGrant(request("dev", "shop", "get", resource))
		if resource == "nodes/proxy" {
			require.Error(t, err)
			continue
		}
		assert.Contains(t, refusal(t, err).Detail, "cannot record "+resource)
	}
	for _, resource := range []string{"pods", "pods/log", "pods/portforward"} {
		_, err := p.KubernetesGrant(request("dev", "shop", "get", resource))
		require.NoError(t, err, resource)
	}
}

// TestVisible_HidesDeniedNamespaces has calls over all namespaces.
func TestVisible_HidesDeniedNamespaces(t *testing.T) {
	p := load(t, `
rules:
  - {name: ours, namespaces: [payroll-web], commands: [read]}
  - {name: none, deny: true, namespaces: [payroll, payroll-*], runners: [ci]}
  - {name: no apps, deny: true, namespaces: [quiet], commands: [get-app]}
  - {name: look, commands: [read]}
`)
	for _, c := range []struct {
		runner, command, namespace string
		visible                    bool
	}{
		{"ci", "list-apps", "payroll", false},
		{"ci", "list-apps", "payroll-db", false},
		{"ci", "list-apps", "payroll-web", true},
		{"ci", "list-apps", "shop", true},
		{"ci", "list-audit", "payroll", false},
		{"ci", "list-namespaces", "payroll", false},
		{"ops", "list-apps", "payroll", true},
		{"ci", "list-apps", "quiet", false}, // by another call that shows the same
		{"ci", "list-namespaces", "quiet", true},
		{"ci", "drain-node", "shop", false}, // which no rule names
	} {
		assert.Equal(t, c.visible, p.Visible(c.runner, c.command, c.namespace), "%+v", c)
	}
	assert.False(t, load(t, "paused: true").Visible("ci", "list-apps", "shop"))
	assert.True(t, load(t, "").Visible("ci", "list-apps", "shop"))
}
