package trustanchor_test

import (
	"crypto/x509"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/trustanchor"
)

func TestIntermediate_ExactMatch(t *testing.T) {
	parse := func(text string) *url.URL {
		t.Helper()
		u, err := url.Parse(text)
		require.NoError(t, err)
		return u
	}
	for text, role := range map[string]string{
		"spiffe://trust/ca/agent": "agent", "spiffe://trust/ca/runner": "runner", "spiffe://other/ca/agent": "agent",
		"spiffe://trust/agent/ca": "", "https://trust/ca/agent": "", "spiffe://trust/ca/agent?a=b": "", "spiffe://trust/ca/agent#a": "",
		"spiffe://u@trust/ca/agent": "", "spiffe://trust": "", "spiffe:ca/agent": "",
	} {
		issuer := &x509.Certificate{IsCA: true, URIs: []*url.URL{parse(text)}}
		assert.Equal(t, role, trustanchor.RoleOf(issuer), text)
		chain := [][]*x509.Certificate{{{}, issuer, {IsCA: true}}}
		assert.Equal(t, text == "spiffe://trust/ca/agent", trustanchor.SignedFor(chain, "trust", trustanchor.RoleAgent) == nil, text)
	}
	right := trustanchor.IntermediateURI("trust", trustanchor.RoleAgent)
	for name, chains := range map[string][][]*x509.Certificate{
		"nothing verified":           nil,
		"an empty chain":             {{}},
		"the certificate alone":      {{{}}},
		"no CA":                      {{{}, {URIs: []*url.URL{right}}}},
		"two identities":             {{{}, {IsCA: true, URIs: []*url.URL{right, right}}}},
		"the right one not above it": {{{}, {IsCA: true}, {IsCA: true, URIs: []*url.URL{right}}}},
	} {
		require.Error(t, trustanchor.SignedFor(chains, "trust", trustanchor.RoleAgent), name)
	}
	good := []*x509.Certificate{{}, {IsCA: true, URIs: []*url.URL{right}}}
	require.NoError(t, trustanchor.SignedFor([][]*x509.Certificate{{{}}, good}, "trust", trustanchor.RoleAgent), "any chain")
}
