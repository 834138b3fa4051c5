package policy_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/policy"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

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
		var refused *problem.Error
		require.ErrorAs(t, err, &refused, text)
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
