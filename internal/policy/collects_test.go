package policy_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/policy"
)

func TestPolicy_Names(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want bool
	}{
		"default":           {"", false},
		"everything":        {`rules: [{name: a, commands: ["*"]}]`, false},
		"full":              {`preset: full`, false},
		"named":             {`rules: [{name: a, commands: [get-app-access-log]}]`, true},
		"of one Runner":     {`rules: [{name: a, runners: [deployer], namespaces: ["prod*"], commands: [get-app-access-log]}]`, true},
		"another namespace": {`rules: [{name: a, namespaces: [staging], commands: [get-app-access-log]}]`, false},
		"denied":            {`rules: [{name: a, deny: true, commands: [get-app-access-log]}]`, false},
		"paused":            {"paused: true\nrules: [{name: a, commands: [get-app-access-log]}]", false},
	} {
		t.Run(name, func(t *testing.T) {
			p := policy.New("the policy")
			assert.False(t, p.Names("get-app-access-log", "production"), "before it is known")
			doc, err := policy.Parse([]byte(c.text))
			require.NoError(t, err)
			p.Set(doc, nil)
			assert.Equal(t, c.want, p.Names("get-app-access-log", "production"))
		})
	}
}
