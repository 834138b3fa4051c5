package policy_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/egress"
	"github.com/pipeops/pipeops-vm-agent/internal/policy"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// TestFetchHosts_Current has a guard ask a policy that changes.
func TestFetchHosts_Current(t *testing.T) {
	p := policy.New("ConfigMap pipeops/pipeops-policy")
	guard := egress.Guard{Hosts: p.FetchHosts}
	const host = "git.example.com"
	refused := &egress.RefusedError{}
	require.ErrorAs(t, guard.CheckHost(host), &refused, "the policy is not known yet")
	for _, c := range []struct {
		text string
		fine bool
	}{
		{"", true}, {"fetchHosts: []", false}, {"fetchHosts: [git.example.com]", true}, {"fetchHosts: ['*.example.com']", true},
		{"fetchHosts: [charts.example.com, '*.git.example.com']", false}, {"fetchHosts: ['*']", true}, {"rules: []", true},
	} {
		doc, err := policy.Parse([]byte(c.text))
		require.NoError(t, err, c.text)
		p.Set(doc, nil)
		err = guard.CheckHost(host)
		assert.Equal(t, c.fine, err == nil, "%s: %v", c.text, err)
		if !c.fine && assert.ErrorAs(t, err, &refused) {
			assert.Contains(t, refused.Error(), `"git.example.com"`)
			assert.Contains(t, refused.Fix(), "fetchHosts in ConfigMap pipeops/pipeops-policy")
		}
	}
	p.Set(policy.Document{}, errors.New("it is invalid"))
	require.ErrorAs(t, guard.CheckHost(host), &refused)
}

func TestFetchHosts_NamesMistakes(t *testing.T) {
	for text, field := range map[string]string{
		"fetchHosts: [git.example.com, 'https://git.example.com']": "fetchHosts[1]",
		"fetchHosts: ['git.example.com:443']":                      "fetchHosts[0]",
		"fetchHosts: [git.example.com/shop]":                       "fetchHosts[0]",
		"fetchHosts: [Git.example.com]":                            "fetchHosts[0]",
		"fetchHosts: ['']":                                         "fetchHosts[0]",
		"fetchHosts: ['[a-z].example.com']":                        "fetchHosts[0]",
		"fetchHosts: ['*.*.*.*.*.example.com']":                    "fetchHosts[0]",
		"fetchHosts: git.example.com":                              "fetchHosts",
		"rules: [{name: a, fetchHosts: [git.example.com]}]":        "rules[0].fetchHosts",
	} {
		_, err := policy.Parse([]byte(text))
		e := &problem.Error{}
		require.ErrorAs(t, err, &e, text)
		assert.Equal(t, field, e.Field, "%s: %v", text, e)
		assert.NotEmpty(t, e.Fix)
	}
}
