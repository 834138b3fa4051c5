package policy_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/policy"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/signature"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const signer = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAINNwMHM8lLcve+HMdKmjaanRnkdOE0Sm3ZUxkjv5LTgg ann@example.com"

func TestSigners_OfMatchingRule(t *testing.T) {
	doc, err := policy.Parse([]byte(`
rules:
  - {name: trusted, runners: [ops], commands: [put-source]}
  - {name: signed, commands: [put-source], signers: ["` + signer + `"]}
`))
	require.NoError(t, err)
	key, err := signature.ReadKey(signer)
	require.NoError(t, err)
	assert.Equal(t, []string{`rule "signed": commits are signed by ` + key.String() + ", or refused"}, doc.Summary())
	p := policy.New("a test")
	i := runnerapi.Intent{Command: "put-source", Access: runnerapi.Named, Runner: "ci", Namespace: "shop"}
	_, err = p.Signers(i)
	require.Error(t, err, "the policy is not known yet")
	p.Set(doc, nil)
	s, err := p.Signers(i)
	require.NoError(t, err)
	require.NotNil(t, s)
	assert.Len(t, s.Keys, 1)
	assert.Equal(t, `signers of rule "signed" in a test`, s.Source)
	i.Runner = "ops"
	s, err = p.Signers(i)
	require.NoError(t, err)
	assert.Nil(t, s)
	i.Command = "put-build"
	_, err = p.Signers(i)
	require.ErrorContains(t, err, "no rule")
}

func TestSigners_Refused(t *testing.T) {
	for text, want := range map[string]string{
		"commands: [put-app], signers: ['" + signer + "']":                               "rules[0].signers: bounds put-source and put-build",
		"commands: [put-source], signers: []":                                            "rules[0].signers: has to have 1 to 64 keys",
		"commands: [put-source], signers: [" + strings.Repeat("'"+signer+"',", 65) + "]": "rules[0].signers: has to have 1 to 64 keys",
		"commands: [put-source], signers: ['" + signer + "', 'ann']":                     "rules[0].signers[1]: is not a public key",
		"deny: true, commands: [put-source], signers: ['" + signer + "']":                "rules[0].deny: a rule that denies takes no",
		"commands: [put-source], signers: ['-----BEGIN OPENSSH PRIVATE KEY-----']":       "rules[0].signers[0]: is a private key",
	} {
		_, err := policy.Parse([]byte("rules: [{name: a, " + text + "}]"))
		known := &problem.Error{}
		require.ErrorAs(t, err, &known, text)
		assert.Contains(t, known.Field+": "+known.Detail, want)
	}
}
