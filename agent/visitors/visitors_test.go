package visitors

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/gateway/signin"
	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
)

// TestSignIn_FollowsHeartbeats: routes are read again when the provider changes, and only then.
func TestSignIn_FollowsHeartbeats(t *testing.T) {
	changes := 0
	s := &SignIn{Changed: func() { changes++ }}
	p, unmet := s.Source()
	assert.Nil(t, p)
	assert.Contains(t, unmet, "has not heard from the control plane yet")
	control, other := &controlapi.Client{}, &controlapi.Client{}
	at := controlapi.VisitorSignIn{Page: "https://cp.example.com/console/visitor", Provider: "https://id.example.com"}
	moved := at
	moved.Provider = "https://other.example.com"
	var before signin.Provider
	for _, c := range []struct {
		what    string
		control *controlapi.Client
		answer  *controlapi.VisitorSignIn
		changed bool
	}{
		{"none, the first time", control, nil, true},
		{"none", control, nil, false},
		{"a provider", control, &at, true},
		{"the same", control, new(at), false},
		{"another issuer", control, &moved, true},
		{"the same, after another registration", other, &moved, true},
		{"none again", other, nil, true},
	} {
		had := changes
		s.Take(c.control, c.answer)
		assert.Equal(t, c.changed, changes > had, c.what)
		p, unmet := s.Source()
		assert.Equal(t, c.changed, p != before || had == 0, c.what)
		before = p
		if c.answer == nil {
			assert.Nil(t, p, c.what)
			assert.Contains(t, unmet, "--openid-issuer", c.what)
			continue
		}
		assert.Empty(t, unmet, c.what)
		assert.Equal(t, c.answer.Provider, p.(provider).ID(), c.what)
	}
}

// TestSignIn_Addresses: the control plane is given the host of the return, without its port.
func TestSignIn_Addresses(t *testing.T) {
	p := provider{signIn: controlapi.VisitorSignIn{Page: "https://cp.example.com/console/visitor"}}
	address, err := p.AuthorizeURL(t.Context(), "https://shop.example.com:8443"+gatewaywire.CallbackPath, "s", "n", "c")
	require.NoError(t, err)
	assert.Equal(t, "https://cp.example.com/console/visitor?challenge=c&host=shop.example.com&state=s", address)
	for _, redirect := range []string{"", "http://shop.example.com" + gatewaywire.CallbackPath, "https://shop.example.com/", "https:///.pipeops/callback", "https://[::1"} {
		_, err := p.AuthorizeURL(t.Context(), redirect, "s", "n", "c")
		require.Error(t, err, redirect)
		_, err = p.Exchange(t.Context(), redirect, "code", "v", "n")
		require.Error(t, err, redirect)
	}
}
