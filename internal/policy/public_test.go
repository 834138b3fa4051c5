package policy_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/policy"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// publishing are intents that bring an App with a host below the gateway's domain, each in another
// way.
func publishing() map[string]runnerapi.Intent {
	own := intent("ci", "put-app", "shop")
	own.Name, own.App = "web", &runnerapi.AppSpec{Image: "web", Ingress: &runnerapi.Ingress{Public: true}}
	all := map[string]runnerapi.Intent{"App": own}
	for _, command := range []string{"apply-manifests", "put-release", "rollback-release"} {
		i := intent("ci", command, "shop")
		i.Objects = []runnerapi.ObjectIntent{{Kind: "App.pipeops.io", Name: "web", Public: "spec.ingress.public"}}
		all[command] = i
	}
	return all
}

// TestPolicy_PublicHosts expects the same for every kind that brings them.
func TestPolicy_PublicHosts(t *testing.T) {
	const rule = `rules: [{name: r, commands: ["*", apply-manifests, put-release, rollback-release], kinds: ["*"]`
	for more, refused := range map[string]string{
		"":                                     "",
		", public: true":                       "",
		", public: true, hosts: []":            "",
		`, hosts: ["*.apps.example.com"]`:      "",
		`, hosts: [web-shop.apps.example.com]`: "",
		", public: false":                      "allows nothing that is reached from outside",
		`, public: false, hosts: ["*"]`:        "allows nothing that is reached from outside",
		", hosts: []":                          "allows the hosts (none), not web-shop.apps.example.com",
		", hosts: [www.example.com]":           "allows the hosts www.example.com, not web-shop.apps.example.com",
	} {
		p := load(t, rule+more+"}]")
		p.SetPublicHost(func(k runnerapi.Key) string { return k.Name + "-" + k.Namespace + ".apps.example.com" })
		for what, i := range publishing() {
			if refused == "" {
				assert.NoError(t, p.Decide(i), "%s of %s", more, what)
			} else {
				assert.Contains(t, refusal(t, p.Decide(i)).Detail, refused, "%s of %s", more, what)
			}
		}
	}
	for what, i := range publishing() {
		assert.Contains(t, refusal(t, load(t, rule+`, hosts: ["*.example.com"]}]`).Decide(i)).Detail, "no gateway", what)
	}
	i := intent("ci", "put-app", "shop")
	i.App = &runnerapi.AppSpec{Image: "web", Ingress: &runnerapi.Ingress{Hosts: []runnerapi.IngressHost{{Host: "www.example.com"}}}}
	assert.Contains(t, refusal(t, load(t, rule+", public: false}]").Decide(i)).Detail, "so not www.example.com", "the gateway would serve it too")
	assert.NoError(t, load(t, rule+", public: true}]").Decide(i))
	assert.NoError(t, load(t, "").Decide(publishing()["App"]), "the default policy keeps what the agent's default promises")
	_, err := policy.Parse([]byte("rules: [{name: r, deny: true, public: false}]"))
	assert.ErrorContains(t, err, "takes no images, charts, hosts, public")
}

// TestPolicy_OutsideWithoutHost expects the same of every way in that names no host, by an object
// and by a write through the Kubernetes API.
func TestPolicy_OutsideWithoutHost(t *testing.T) {
	const rule = `rules: [{name: r, commands: ["*", apply-manifests, put-release, rollback-release, kubernetes-api], kinds: ["*"], kubernetes: {user: dev}`
	ways := map[string]runnerapi.Intent{}
	for _, command := range []string{"apply-manifests", "put-release", "rollback-release"} {
		i := intent("ci", command, "shop")
		i.Objects = []runnerapi.ObjectIntent{{Kind: "Service", Name: "web", Outside: []runnerapi.NameIntent{{Field: "spec.type", Name: "LoadBalancer"}}}}
		ways[command] = i
	}
	for _, resource := range []string{"services", "services/status", "ingressroutes"} {
		for _, verb := range []string{"create", "update", "patch"} {
			ways[verb+" "+resource] = request("ci", "shop", verb, resource)
		}
	}
	for more, refused := range map[string]string{
		"":                                   "",
		`, hosts: ["*"]`:                     "",
		", public: true":                     "",
		", public: true, hosts: [a.example]": "allows the hosts a.example, and the agent cannot check",
		", hosts: []":                        "allows the hosts (none), and the agent cannot check",
		`, hosts: ["*.example"]`:             "cannot check which hosts lead to",
		`, public: false, hosts: ["*"]`:      "allows nothing that is reached from outside, so not",
	} {
		p := load(t, rule+more+"}]")
		for what, i := range ways {
			if refused == "" {
				assert.NoError(t, p.Decide(i), "%s of %s", more, what)
			} else {
				assert.Contains(t, refusal(t, p.Decide(i)).Detail, refused, "%s of %s", more, what)
			}
		}
		for _, verb := range []string{"get", "delete"} {
			assert.NoError(t, p.Decide(request("ci", "shop", verb, "services")), "%s: %s", more, verb)
		}
		assert.NoError(t, p.Decide(request("ci", "shop", "patch", "deployments")), more)
	}
}

// TestPolicy_DeniesPublic has a switch that works even if the policy is invalid elsewhere.
func TestPolicy_DeniesPublic(t *testing.T) {
	p := policy.New("a test")
	set := func(data map[string]string) { p.Set(policy.FromConfigMap(data)) }
	open := func() bool {
		reason, known := p.Public()
		require.True(t, known)
		return reason == ""
	}
	_, known := p.Public()
	assert.False(t, known)
	p.Set(policy.Document{}, errors.New("the API server refuses"))
	assert.False(t, open(), "no valid policy was read yet")

	const broken, closed = "rules: [{name: x, comands: []}]", "public: false"
	for _, c := range []struct {
		data map[string]string
		want bool
	}{
		{nil, true},
		{map[string]string{"public": "false"}, false},
		{map[string]string{"policy.yaml": broken}, false},
		{map[string]string{"policy.yaml": broken, "public": "true"}, true},
		{map[string]string{"policy.yaml": broken}, true},
		{map[string]string{"policy.yaml": broken, "public": "false"}, false},
		{map[string]string{"policy.yaml": closed}, false},
		{map[string]string{"policy.yaml": closed, "public": "true"}, false},
		{map[string]string{"paused": "true", "readOnly": "true"}, true},
		{map[string]string{"public": "no way"}, false},
		{map[string]string{"policy.yaml": "public: true"}, true},
	} {
		set(c.data)
		assert.Equal(t, c.want, open(), "%v", c.data)
	}
	set(map[string]string{"public": "false"})
	require.NoError(t, p.Decide(publishing()["App"]), "the switch is about routes: a Runner may go on")
}
