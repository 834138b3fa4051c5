package command

import (
	"net/netip"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/signature"
)

// TestBuildFetch_ReadsGuard in the form in which internal/build writes it.
func TestBuildFetch_ReadsGuard(t *testing.T) {
	for _, c := range []struct {
		args    []string
		allowed map[string]bool
	}{
		{nil, map[string]bool{"git.example.com": true}},
		{[]string{"--fetch-hosts="}, map[string]bool{"git.example.com": false}},
		{[]string{"--fetch-hosts=git.example.com,*.charts.example.com"}, map[string]bool{"git.example.com": true, "a.charts.example.com": true, "example.com": false}},
	} {
		guard, fl := &guardFlags{}, pflag.NewFlagSet("fetch", pflag.ContinueOnError)
		guard.add(fl)
		require.NoError(t, fl.Parse(append(c.args, "--fetch-addresses=127.0.0.0/8", "--fetch-addresses=169.254.20.10/32")))
		read, err := guard.read()
		require.NoError(t, err)
		for host, fine := range c.allowed {
			assert.Equal(t, fine, read.CheckHost(host) == nil, "%q: %s", c.args, host)
		}
		for address, fine := range map[string]bool{"127.0.0.1": true, "169.254.20.10": true, "169.254.169.254": false} {
			assert.Equal(t, fine, read.Check(netip.MustParseAddr(address)) == nil, address)
		}
	}
	_, err := (&guardFlags{addresses: []string{"localhost"}}).read()
	require.ErrorContains(t, err, "--fetch-addresses: \"localhost\" is neither a network nor an address (fix: ")
}

// TestBuildFetch_ReadsSigners in the form in which internal/build writes them.
func TestBuildFetch_ReadsSigners(t *testing.T) {
	const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAINNwMHM8lLcve+HMdKmjaanRnkdOE0Sm3ZUxkjv5LTgg ann, bob@example.com"
	read := func(args ...string) ([]signature.Signers, error) {
		signers, fl := &signerFlags{}, pflag.NewFlagSet("fetch", pflag.ContinueOnError)
		signers.add(fl)
		require.NoError(t, fl.Parse(args))
		return signers.read()
	}
	all, err := read()
	require.NoError(t, err)
	assert.Empty(t, all)
	all, err = read("--signers=the policy", "--signer="+key)
	require.NoError(t, err)
	require.Len(t, all, 1)
	assert.Equal(t, "the policy", all[0].Source)
	assert.Len(t, all[0].Keys, 1)
	all, err = read("--signers=the policy")
	require.NoError(t, err)
	assert.Len(t, all, 1, "no key signs: nothing is accepted")
	all, err = read("--signers=the policy", `--signer={"identity":"ann@example.com","issuer":"https://accounts.example.com"}`, "--signer="+key)
	require.NoError(t, err)
	assert.Len(t, all[0].Keys, 2)
	_, err = read("--signers=the policy", "--signer=ann")
	require.ErrorContains(t, err, "--signer: is not a public key")
}
