package controlapi_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
)

func TestToken_RoundTrip(t *testing.T) {
	for _, fingerprint := range []string{"", controlapi.Fingerprint(newAuthority(t).cert)} {
		token := newTestToken(t, fingerprint)
		got, err := controlapi.ParseToken(" " + token.Reveal() + "\n")
		require.NoError(t, err)
		assert.Equal(t, token, got)
		assert.Equal(t, token.Hash(), got.Hash())
		assert.NotContains(t, got.Credential(), ".", "the fingerprint stays here")
	}
}

func TestToken_Address(t *testing.T) {
	for _, fingerprint := range []string{"", strings.Repeat("ab", 32)} {
		for _, address := range []string{"cp.example.com", "cp.example.com:8443", "192.0.2.1:443", "[2001:db8::1]:8443"} {
			token := newTestToken(t, fingerprint)
			assert.Empty(t, token.URL())
			token = token.At("https://" + address)
			got, err := controlapi.ParseToken(token.Reveal())
			require.NoError(t, err, address)
			assert.Equal(t, token, got)
			assert.Equal(t, "https://"+address, got.URL())
			assert.NotContains(t, got.Credential(), address, "the address is not sent")
		}
		good := newTestToken(t, fingerprint).Reveal()
		for _, address := range []string{"", ":8443", "a/b", "a b", "a?b", "a@b", "u:p@a", "a:port", "$(id)", "a`id`", "a;id", "ä"} {
			_, err := controlapi.ParseToken(good + "@" + address)
			require.ErrorIs(t, err, controlapi.ErrMalformedToken, address)
		}
	}
}

func TestToken_Public(t *testing.T) {
	token, err := controlapi.NewPublicToken(strings.Repeat("ab", 32))
	require.NoError(t, err)
	got, err := controlapi.ParseToken(token.At("https://cp.example.com").Reveal())
	require.NoError(t, err)
	assert.True(t, got.Public())
	assert.Equal(t, "https://cp.example.com", got.URL())
	sent, err := controlapi.ParseCredential(got.With("e30.e30.x_-").Credential())
	require.NoError(t, err)
	assert.Equal(t, []string{token.ID, "e30.e30.x_-", ""}, []string{sent.ID, sent.Proof(), sent.Fingerprint})
	assert.NotContains(t, fmt.Sprintf("%v %#v", sent, sent), "e30")
	secret := newTestToken(t, "")
	assert.False(t, secret.Public())
	for _, text := range []string{
		got.Reveal(), secret.Credential() + "~e30", "pipeops_" + token.ID + "_", "pipeops_" + token.ID + "_~e30", got.With(strings.Repeat("x", 9<<10)).Credential(),
	} {
		_, err := controlapi.ParseCredential(text)
		require.ErrorIs(t, err, controlapi.ErrMalformedToken, text)
	}
}

func TestToken_HidesSecret(t *testing.T) {
	token := newTestToken(t, "")
	secret := strings.TrimPrefix(token.Credential(), "pipeops_"+token.ID+"_")
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		assert.NotContains(t, fmt.Sprintf(verb, token), secret)
	}
}

func TestParseToken_RefusesMalformed(t *testing.T) {
	good := newTestToken(t, strings.Repeat("ab", 32)).Reveal()
	for _, text := range []string{"", "secret", good[1:], good[:len(good)-1], strings.ToUpper(good), good + "x",
		strings.Replace(good, ".", "", 1), strings.Repeat("pipeops_", 100)} {
		_, err := controlapi.ParseToken(text)
		require.ErrorIs(t, err, controlapi.ErrMalformedToken, text)
		assert.Contains(t, err.Error(), "token create")
	}
}

func FuzzParseToken(f *testing.F) {
	f.Add(newTestToken(f, "").Reveal())
	f.Add(newTestToken(f, strings.Repeat("ab", 32)).Reveal())
	f.Add(newTestToken(f, strings.Repeat("ab", 32)).Reveal() + "@cp.example.com:8443")
	f.Add("pipeops__.@")
	f.Add("pipeops_" + strings.Repeat("a", 16))
	f.Fuzz(func(t *testing.T, text string) {
		token, err := controlapi.ParseToken(text)
		require.True(t, err != nil || token.Reveal() == strings.TrimSpace(text), "not the same token")
	})
}
