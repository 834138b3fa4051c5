package policy_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/policy"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/problemtest"
)

const kubernetesRules = `
rules:
  - name: never there
    deny: true
    namespaces: [kube-system]
  - name: developers
    runners: [dev]
    namespaces: [shop, shop-*, p*]
    commands: [kubernetes-api]
    kubernetes: {user: dev@example.com, groups: [developers, "team:web"]}
  - name: lookers
    runners: [look]
    commands: [kubernetes-api]
    kubernetes: {user: looker, readOnly: true}
  - name: who
    runners: [nobody]
    commands: [kubernetes-api]
  - name: owner
    runners: [owner]
    namespaces: ["*", pipeops]
    commands: [kubernetes-api]
    kubernetes: {user: owner}
`

func request(runner, namespace, verb, resource string) runnerapi.Intent {
	i := intent(runner, runnerapi.KubernetesCall, namespace)
	resource, sub, _ := strings.Cut(resource, "/")
	i.Kubernetes = &runnerapi.KubernetesRequest{
		Verb: verb, Resource: resource, Subresource: sub, Namespace: namespace, AgentNamespace: "pipeops", InAgentNamespace: namespace == "pipeops", Discovery: resource == "",
	}
	return i
}

func TestKubernetesAPI_ByName(t *testing.T) {
	p := load(t, kubernetesRules)
	for name, c := range map[string]struct {
		intent runnerapi.Intent
		says   string // empty where it is allowed
	}{
		"a namespace":                 {request("dev", "shop", "create", "pods"), ""},
		"a pattern of namespaces":     {request("dev", "shop-2", "create", "pods"), ""},
		"into a pod":                  {request("dev", "shop", "create", "pods/exec"), ""},
		"another namespace":           {request("dev", "web", "get", "pods"), "no rule"},
		"all namespaces":              {request("dev", "", "list", "pods"), "no rule"},
		"what there is":               {request("dev", "", "get", ""), ""},
		"the agent's own":             {request("dev", "pipeops", "get", "secrets"), "agent's own namespace pipeops"},
		"the agent's own, named":      {request("owner", "pipeops", "update", "configmaps"), ""},
		"a namespace that is denied":  {request("look", "kube-system", "get", "pods"), "never there"},
		"what there is, though":       {request("look", "", "get", ""), ""},
		"reading everywhere":          {request("look", "", "list", "pods"), ""},
		"watching":                    {request("look", "shop", "watch", "pods"), ""},
		"a log":                       {request("look", "shop", "get", "pods/log"), ""},
		"writing":                     {request("look", "shop", "patch", "pods"), "not to patch pods"},
		"deleting":                    {request("look", "shop", "deletecollection", "pods"), "reading only"},
		"a WebSocket, which is a GET": {request("look", "shop", "get", "pods/exec"), "not to get pods/exec"},
		"a proxy":                     {request("look", "shop", "get", "services/proxy"), "reading only"},
		"nobody in particular":        {request("nobody", "shop", "get", "pods"), "as whom"},
		"nobody's name":               {request("else", "shop", "get", "pods"), "no rule"},
	} {
		grant, err := p.KubernetesGrant(c.intent)
		if c.says == "" {
			require.NoError(t, err, name)
			assert.NotEmpty(t, grant.As.User, name)
			continue
		}
		e := problemtest.Of(t, err, name)
		assert.Equal(t, runnerapi.CodePolicyDenied, e.Code, name)
		assert.Contains(t, e.Detail, c.says, name)
		assert.Empty(t, grant, name)
	}
	grant, err := p.KubernetesGrant(request("dev", "shop", "get", "pods"))
	require.NoError(t, err)
	assert.Equal(t, runnerapi.KubernetesIdentity{User: "dev@example.com", Groups: []string{"developers", "team:web"}}, grant.As)

	kept := request("dev", "shop", "watch", "pods")
	kept.Kubernetes.Grant = grant
	require.NoError(t, p.Decide(kept))
	doc, err := policy.Parse([]byte(strings.Replace(kubernetesRules, "team:web", "team:shop", 1)))
	require.NoError(t, err)
	p.Set(doc, nil)
	require.ErrorContains(t, p.Decide(kept), "another user", "what began as somebody does not go on as him")
}

const impersonationRules = `
rules:
  - name: here
    namespaces: [shop]
    commands: [kubernetes-api]
    kubernetes: {user: dev}
  - name: there
    namespaces: [web, "*", pipeops]
    commands: [kubernetes-api]
    kubernetes: {user: dev, groups: [devs], impersonate: {users: [alice], groups: [web]}, streams: 3, readOnly: true}
`

// TestImpersonation_ByName names user and group, by the rule for the namespace.
func TestImpersonation_ByName(t *testing.T) {
	p := load(t, impersonationRules)
	as := func(i runnerapi.Intent, user string, groups ...string) runnerapi.Intent {
		i.Kubernetes.Impersonate = runnerapi.KubernetesIdentity{User: user, Groups: groups}
		return i
	}
	for says, i := range map[string]runnerapi.Intent{
		`user "alice"`: as(request("a", "shop", "get", "pods"), "alice"),
		`user "bob"`:   as(request("a", "web", "get", "pods"), "bob"),
		`group "devs"`: as(request("a", "web", "get", "pods"), "alice", "web", "devs"),
	} {
		_, err := p.KubernetesGrant(i)
		require.ErrorContains(t, err, "does not allow to impersonate "+says)
	}
	for _, i := range []runnerapi.Intent{
		as(request("a", "web", "get", "pods"), "alice", "web"),
		as(request("a", "", "get", ""), "alice", "web"), // discovery, which any of the rules may allow
	} {
		grant, err := p.KubernetesGrant(i)
		require.NoError(t, err)
		assert.Equal(t, runnerapi.KubernetesIdentity{User: "alice", Groups: []string{"web"}}, grant.As)
	}
	grant, err := p.KubernetesGrant(request("a", "web", "get", "pods"))
	require.NoError(t, err)
	assert.Equal(t, runnerapi.KubernetesGrant{
		As: runnerapi.KubernetesIdentity{User: "dev", Groups: []string{"devs"}}, AgentNamespace: true, ReadOnly: true, Streams: 3,
	}, grant)
}

// TestKubernetesAPI_GuardsAgentNamespace is about nodes' kubelets, field selectors
// and what had been granted before the policy changed.
func TestKubernetesAPI_GuardsAgentNamespace(t *testing.T) {
	p := load(t, kubernetesRules)
	for _, resource := range []string{"nodes/proxy", "secrets"} {
		for runner, says := range map[string]string{"look": "agent's own namespace pipeops", "owner": ""} {
			i := request(runner, "", "list", resource)
			i.Kubernetes.InAgentNamespace = true
			switch err := p.Decide(i); says {
			case "":
				require.NoError(t, err, resource)
			default:
				require.ErrorContains(t, err, says, resource)
			}
		}
	}
	open := request("look", "", "watch", "secrets")
	open.Kubernetes.Grant.AgentNamespace = true
	require.ErrorContains(t, p.Decide(open), "any more")
}

// TestImpersonation_RefusesSystem refuses the names that Kubernetes keeps for itself, and those
// that HTTP would make into others.
func TestImpersonation_RefusesSystem(t *testing.T) {
	for name, kubernetes := range map[string]string{
		"a group":           `{user: a, groups: [b, "system:masters"]}`,
		"a user":            `{user: "system:admin"}`,
		"a ServiceAccount":  `{user: "system:serviceaccount:kube-system:default"}`,
		"with a space":      `{user: a, groups: [" system:masters"]}`,
		"with a line break": `{user: "a\nImpersonate-Group: system:masters"}`,
		"nobody":            `{groups: [a]}`,
		"impersonated":      `{user: a, impersonate: {users: ["system:admin"]}}`,
		"of a group":        `{user: a, impersonate: {groups: ["system:masters"]}}`,
		"a share":           `{user: a, streams: -1}`,
		"a long name":       `{user: ` + strings.Repeat("a", 254) + `}`,
	} {
		_, err := policy.Parse([]byte("rules: [{name: a, commands: [kubernetes-api], kubernetes: " + kubernetes + "}]"))
		e := problemtest.Of(t, err, name)
		assert.Contains(t, e.Field, "rules[0].kubernetes.", name)
	}
	for name, rule := range map[string]string{
		"without the command": `{name: a, commands: [read], kubernetes: {user: a}}`,
		"a denial":            `{name: a, deny: true, commands: [kubernetes-api], kubernetes: {user: a}}`,
		"an unknown field":    `{name: a, commands: [kubernetes-api], kubernetes: {user: a, uid: b}}`,
	} {
		_, err := policy.Parse([]byte("rules: [" + rule + "]"))
		require.Error(t, err, name)
	}
}
