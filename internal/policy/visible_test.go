package policy_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

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
