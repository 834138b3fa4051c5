package policy_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
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

// TestSigners_Ended keeps a policy valid when a key expires.
func TestSigners_Ended(t *testing.T) {
	now := time.Now()
	key, err := openpgp.NewEntity("ann", "", "", &packet.Config{Algorithm: packet.PubKeyAlgoEdDSA, KeyLifetimeSecs: 3600})
	require.NoError(t, err)
	var text strings.Builder
	w, err := armor.Encode(&text, openpgp.PublicKeyType, nil)
	require.NoError(t, err)
	require.NoError(t, key.Serialize(w))
	require.NoError(t, w.Close())
	document, err := json.Marshal(policy.Document{Rules: []policy.Rule{{Name: "git", Commands: []string{"put-source"}, Signers: []policy.Signer{signer, policy.Signer(text.String())}}}})
	require.NoError(t, err)
	doc, err := policy.Parse(document)
	require.NoError(t, err)
	assert.Empty(t, doc.EndedSigners(now))
	ended := doc.EndedSigners(now.Add(2 * time.Hour))
	require.Len(t, ended, 1)
	assert.Contains(t, ended[0], "(ann) until ")
}

func TestSigners_Refused(t *testing.T) {
	for text, want := range map[string]string{
		"commands: [put-app], signers: ['" + signer + "']":                               "rules[0].signers: bounds put-source and put-build",
		"commands: [put-source], signers: [{identity: ann@example.com}]":                 "rules[0].signers[0].issuer: has to be the https URL",
		"commands: [put-source], signers: [{subject: ann@example.com}]":                  "rules[0].signers[0]: is not a keyless signer (identity or identityRegexp, issuer, trustedRoot)",
		"commands: [put-source], signers: []":                                            "rules[0].signers: has to have 1 to 64 signers",
		"commands: [put-source], signers: [" + strings.Repeat("'"+signer+"',", 65) + "]": "rules[0].signers: has to have 1 to 64 signers",
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

// TestSigners_Keyless: a rule with a keyless signer stays the same when another one is written.
func TestSigners_Keyless(t *testing.T) {
	const rules = "rules:\n- name: git\n  commands: [put-source]\n  signers:\n  - issuer: https://accounts.example.com\n    identity: ann@example.com\n  - " + signer + "\n"
	text, _, err := policy.WithRule([]byte(rules), "", policy.Rule{Name: "git", Commands: []string{"put-source", "put-build"}})
	require.NoError(t, err)
	doc, err := policy.Parse(text)
	require.NoError(t, err, "%s", text)
	assert.Contains(t, doc.Summary()[0], `commits are signed by keyless identity "ann@example.com" of issuer https://accounts.example.com`)
	p := policy.New("a test")
	p.Set(doc, nil)
	s, err := p.Signers(runnerapi.Intent{Command: "put-source", Access: runnerapi.Named, Runner: "ci", Namespace: "shop", Name: "web"})
	require.NoError(t, err)
	require.NotNil(t, s)
	assert.Len(t, s.Keys, 2)
	assert.Equal(t, `{"identity":"ann@example.com","issuer":"https://accounts.example.com"}`, s.Keys[0].Text, "as a build's pod gets it")
}
