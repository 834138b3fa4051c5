package policy_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/policy"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func TestPreset_FollowsRules(t *testing.T) {
	applying := intent("ci", "apply-manifests", "shop")
	applying.Objects = []runnerapi.ObjectIntent{{Kind: "ConfigMap", Name: "a"}}
	for name, c := range map[string]struct {
		text    string
		allowed []runnerapi.Intent
		refused []runnerapi.Intent
	}{
		"viewer": {"preset: viewer", []runnerapi.Intent{intent("ci", "get-app", "shop")}, []runnerapi.Intent{intent("ci", "put-app", "shop")}},
		"deploy": {"preset: deploy", []runnerapi.Intent{intent("ci", "put-app", "shop")}, []runnerapi.Intent{intent("ci", "exec-app", "shop")}},
		"full": {
			"preset: full", []runnerapi.Intent{intent("ci", "exec-app", "shop"), intent("ci", "put-source", "shop"), applying},
			[]runnerapi.Intent{intent("ci", "kubernetes-api", ""), intent("ci", "get-join-token", "")},
		},
		"rules before it": {
			"preset: full\nrules: [{name: no shells, deny: true, commands: [exec-app]}]",
			[]runnerapi.Intent{applying}, []runnerapi.Intent{intent("ci", "exec-app", "shop")},
		},
	} {
		p := load(t, c.text)
		for _, i := range c.allowed {
			assert.NoError(t, p.Decide(i), "%s: %s", name, i.Command)
		}
		for _, i := range c.refused {
			assert.Error(t, p.Decide(i), "%s: %s", name, i.Command)
		}
	}
}

func TestNameOf(t *testing.T) {
	rule := policy.Rule{Commands: []string{"exec-app"}, Runners: []string{"dev"}, Namespaces: []string{"staging"}}
	assert.Equal(t, "exec-app for dev in staging", policy.NameOf(rule))
	names := map[string]bool{}
	for _, runner := range []string{"ci", "ci-*", "ci-all", "*", "all"} {
		for _, commands := range [][]string{{"exec-app"}, {"apply-manifests", "delete-release", "put-release", "rollback-release"}} {
			name := policy.NameOf(policy.Rule{Commands: commands, Runners: []string{runner}})
			_, err := policy.Parse([]byte("rules: [{name: " + name + "}]"))
			assert.NoError(t, err, name)
			names[name] = true
		}
	}
	assert.Len(t, names, 10, "no two rules have one name")
}

func TestPreset_AsKey(t *testing.T) {
	p := policy.New("policy")
	doc, err := policy.FromConfigMap(map[string]string{"preset": "viewer\n"})
	require.NoError(t, err)
	p.Set(doc, nil)
	assert.Error(t, p.Decide(intent("ci", "put-app", "shop")))
	for says, data := range map[string]map[string]string{
		`"all" is none of viewer, deploy, full`:      {"preset": "all"},
		`it is "full", and policy.yaml has "viewer"`: {"preset": "full", "policy.yaml": "preset: viewer"},
		`"none" is none of`:                          {"policy.yaml": "preset: none"},
	} {
		_, err := policy.FromConfigMap(data)
		assert.ErrorContains(t, err, says)
	}
}

// TestPreset_KeptByRule: a rule that is added to a preset widens nothing else.
func TestPreset_KeptByRule(t *testing.T) {
	restarts := policy.Rule{Name: "restarts", Commands: []string{"restart-app"}}
	text, _, err := policy.WithRule([]byte("preset: viewer\n"), "", restarts)
	require.NoError(t, err)
	beside, _, err := policy.WithRule(nil, "viewer", restarts)
	require.NoError(t, err)
	assert.Equal(t, "preset: viewer\n"+string(beside), string(text), "as where it is a key beside the text")
	p := load(t, string(text))
	assert.NoError(t, p.Decide(intent("ci", "restart-app", "shop")))
	assert.NoError(t, p.Decide(intent("ci", "get-app", "shop")))
	assert.Error(t, p.Decide(intent("ci", "put-app", "shop")))
}
