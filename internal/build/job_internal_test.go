package build

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/egress"
	"github.com/pipeops/pipeops-vm-agent/internal/policy"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func TestBuild_FetchIsGuarded(t *testing.T) {
	owner := policy.New("a test")
	template := Options{Guard: egress.Guard{
		Allowed: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("169.254.20.10/32")}, Hosts: owner.FetchHosts,
	}}.jobTemplate()
	spec := runnerapi.BuildSpec{Git: runnerapi.BuildGit{URL: "https://git.example.com/shop/web.git"}}
	for text, flags := range map[string][]string{
		"": nil,
		"fetchHosts: [git.example.com, '*.charts.example.com']": {"--fetch-hosts=git.example.com,*.charts.example.com"},
		"fetchHosts: []": {"--fetch-hosts="},
	} {
		doc, err := policy.Parse([]byte(text))
		require.NoError(t, err)
		owner.Set(doc, nil)
		command := template.fetch(spec).Command
		require.Greater(t, len(command), 10)
		assert.Equal(t, append([]string{"--fetch-addresses=127.0.0.0/8", "--fetch-addresses=169.254.20.10/32"}, flags...), command[10:], text)
	}
	assert.Equal(t, []string{"--fetch-hosts="}, jobTemplate{}.fetch(spec).Command[10:], "without a policy, from nowhere")
}

func TestBuild_FetchChecksSignature(t *testing.T) {
	const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAINNwMHM8lLcve+HMdKmjaanRnkdOE0Sm3ZUxkjv5LTgg ann@example.com"
	owner := policy.New("a test")
	spec := runnerapi.BuildSpec{Git: runnerapi.BuildGit{URL: "https://git.example.com/shop/web.git"}}
	at, by := runnerapi.Key{Namespace: "pipeops-builds", Name: "web"}, runnerapi.Caller{Runner: "ci"}
	options := Options{Guard: egress.Guard{Hosts: egress.EveryHost}, Policy: owner}
	for text, want := range map[string][]string{
		"rules: [{name: all, commands: [put-build]}]":                                                                              nil,
		"rules: [{name: signed, commands: [put-build], signers: ['" + key + "']}]":                                                 {`--signers=signers of rule "signed" in a test`, "--signer=" + key},
		"rules: [{name: of, runners: [ops], commands: [put-build], signers: ['" + key + "']}, {name: all, commands: [put-build]}]": nil,
	} {
		doc, err := policy.Parse([]byte(text))
		require.NoError(t, err)
		owner.Set(doc, nil)
		template, err := options.signedTemplate(at, spec, by)
		require.NoError(t, err)
		assert.Equal(t, append([]string{}, want...), append([]string{}, template.fetch(spec).Command[10:]...), text)
	}
	_, err := Options{}.signedTemplate(at, spec, by)
	require.ErrorContains(t, err, "no policy")
	owner.Set(policy.Document{Rules: []policy.Rule{}}, nil)
	_, err = options.signedTemplate(at, spec, by)
	require.ErrorContains(t, err, "no rule")
}
