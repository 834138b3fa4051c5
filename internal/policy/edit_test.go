package policy_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/policy"
	"github.com/pipeops/pipeops-vm-agent/test/problemtest"
)

var added = policy.Rule{Name: "chart shop web", Commands: []string{"put-release"}, Charts: []policy.Chart{{Name: "web", Version: "1.0.0"}}}

const addedLines = `- name: chart shop web
  charts:
  - name: web
    version: 1.0.0
  commands:
  - put-release
`

// TestWithRule_KeepsText expects the text of before once the rule is removed.
func TestWithRule_KeepsText(t *testing.T) {
	for _, c := range []struct{ name, before, with, after string }{
		{"default rules", "# ours\nreadOnly: false\n", "# ours\nreadOnly: false\nrules:\n" + addedLines + "- name: default\n", "# ours\nreadOnly: false\nrules:\n- name: default\n"},
		{"no policy", "", "rules:\n" + addedLines + "- name: default\n", "rules:\n- name: default\n"},
		{"no rules", "rules: [] # nothing\npaused: true\n", "rules: # nothing\n" + addedLines + "paused: true\n", "rules: [] # nothing\npaused: true\n"},
		{
			"comments", "# all\nrules: # from the top\n  # bots\n  - name: bots # deny\n    deny: true\n  # the rest\n  - name: rest\naudit: required\n",
			"# all\nrules: # from the top\n  - name: chart shop web\n    charts:\n    - name: web\n      version: 1.0.0\n    commands:\n    - put-release\n" +
				"  # bots\n  - name: bots # deny\n    deny: true\n  # the rest\n  - name: rest\naudit: required\n", "",
		},
	} {
		with, _, err := policy.WithRule([]byte(c.before), "", added)
		require.NoError(t, err, c.name)
		assert.Equal(t, c.with, string(with), c.name)
		again, _, err := policy.WithRule(with, "", added)
		require.NoError(t, err, c.name)
		assert.Equal(t, c.with, string(again), "%s: it is there once", c.name)
		after, err := policy.WithoutRule(with, added.Name)
		require.NoError(t, err, c.name)
		if c.after == "" {
			c.after = c.before
		}
		assert.Equal(t, c.after, string(after), c.name)
	}
}

// TestWithRule_KeepsOwnersBounds: a rule that is added again takes back nothing that its owner has
// added, and turns no denial into a permission.
func TestWithRule_KeepsOwnersBounds(t *testing.T) {
	rule := policy.Rule{Name: "shells", Commands: []string{"exec-app"}}
	text, _, err := policy.WithRule([]byte("rules:\n- {name: x}\n"), "", policy.Rule{
		Name: "shells", Commands: []string{"exec-app"}, Record: true, Annotations: []string{"a/*"},
	})
	require.NoError(t, err)
	again, _, err := policy.WithRule(text, "", rule)
	require.NoError(t, err)
	assert.Equal(t, string(text), string(again))
	assert.Contains(t, string(again), "record: true")
	_, _, err = policy.WithRule([]byte("rules:\n- name: shells\n  deny: true\n"), "", rule)
	assert.ErrorContains(t, err, "denies")
}

// TestWithRule_KeepsBounds: the next version of a chart is bounded as the one before.
func TestWithRule_KeepsBounds(t *testing.T) {
	bounded := added
	bounded.Images, bounded.MaxReplicas, bounded.Approval = []string{"registry.example.com/shop"}, new(int32(3)), "10m"
	text, _, err := policy.WithRule(nil, "", bounded)
	require.NoError(t, err)
	next := added
	next.Charts = []policy.Chart{{Name: "web", Version: "1.1.0"}}
	text, _, err = policy.WithRule(text, "", next)
	require.NoError(t, err)
	doc, err := policy.Parse(text)
	require.NoError(t, err)
	bounded.Charts = next.Charts
	assert.Equal(t, bounded, doc.Rules[0])
}

func TestWithRule_RefusesFlowStyle(t *testing.T) {
	for _, text := range []string{"rules: [{name: a}]", "{rules: [{name: a}]}"} {
		_, _, err := policy.WithRule([]byte(text), "", added)
		p := problemtest.Of(t, err, text)
		assert.Equal(t, "rules", p.Field)
		assert.Contains(t, p.Fix, addedLines[:len(addedLines)-1], "what its owner can add by hand")
	}
	_, err := policy.WithoutRule([]byte("rules: [{name: a}, {name: b}]"), "a")
	assert.Equal(t, "rules[0]", problemtest.Of(t, err, "flow style").Field)
}

// TestWithRule_KeepsEmptyLists: a bound that allows nothing stays one.
func TestWithRule_KeepsEmptyLists(t *testing.T) {
	bounds := policy.Rule{Name: added.Name}
	var fields []string
	for field, value := range reflect.ValueOf(&bounds).Elem().Fields() {
		if field.Type.Kind() == reflect.Slice {
			value.Set(reflect.MakeSlice(field.Type, 0, 0))
			fields = append(fields, strings.Split(field.Tag.Get("json"), ",")[0])
		}
	}
	require.Contains(t, fields, "placement")
	bounds.Kubernetes = &policy.Kubernetes{User: "dev", Groups: []string{}, Impersonate: &policy.Impersonation{Users: []string{}, Groups: []string{}}}
	text, err := policy.RuleText(bounds)
	require.NoError(t, err)
	for _, field := range fields {
		assert.Contains(t, text+"\n", "  "+field+": []\n")
	}
	assert.Equal(t, 3, strings.Count(text, "groups: []")+strings.Count(text, "users: []"))

	const before = "rules:\n- name: chart shop web\n  commands: [put-release]\n  hosts: []\n  placement: []\n  images: []\n"
	with, kept, err := policy.WithRule([]byte(before), "", added)
	require.NoError(t, err)
	doc, err := policy.Parse(with)
	require.NoError(t, err)
	assert.Equal(t, kept, doc.Rules[0])
	assert.Equal(t, [][]string{{}, {}, {}}, [][]string{kept.Hosts, kept.Placement, kept.Images})
}
