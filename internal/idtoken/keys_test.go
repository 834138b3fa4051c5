package idtoken

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/selfsigned"
)

// keySet returns the JSON of keys.
func keySet(t testing.TB, keys ...jose.JSONWebKey) string {
	t.Helper()
	text, err := json.Marshal(jose.JSONWebKeySet{Keys: keys})
	require.NoError(t, err)
	return string(text)
}

func rsaKey(t *testing.T, bits int) *rsa.PrivateKey {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, bits)
	require.NoError(t, err)
	return key
}

func TestParseKeys(t *testing.T) {
	edwards, _, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	public := []crypto.PublicKey{rsaKey(t, 2048).Public(), selfsigned.Key(t).Public(), edwards}
	keys, err := ParseKeys(keySet(t,
		jose.JSONWebKey{Key: public[0], KeyID: "a", Algorithm: "RS256", Use: "sig"}, jose.JSONWebKey{Key: public[1], KeyID: "b"}, jose.JSONWebKey{Key: public[2]},
	) + "\n")
	require.NoError(t, err)
	assert.Equal(t, public, keys.public)
	again, err := ParseKeys(keys.String())
	require.NoError(t, err)
	assert.Equal(t, keys, again)
	extra, err := ParseKeys(strings.Replace(keySet(t, jose.JSONWebKey{Key: public[0]}), `"kty"`, `"note":"<script>","kty"`, 1) + "\n")
	require.NoError(t, err)
	assert.NotContains(t, extra.String(), "note")
	_, err = ParseKeys(strings.Replace(keys.String(), "{", `{"cacheHeader":{"age":"1"},`, 1))
	require.NoError(t, err, "of GKE")
}

func TestParseKeys_Refuses(t *testing.T) {
	sound := jose.JSONWebKey{Key: selfsigned.Key(t).Public()}
	with := func(change func(*jose.JSONWebKey)) string {
		key := sound
		change(&key)
		return keySet(t, sound, key)
	}
	private := selfsigned.Key(t)
	for name, c := range map[string]struct{ text, says string }{
		"nothing":           {"", "not a JSON Web Key Set"},
		"no JSON":           {"-----BEGIN PUBLIC KEY-----", "kubectl get --raw /openid/v1/jwks"},
		"a list":            {"[]", "not a JSON Web Key Set"},
		"no keys":           {"{}", "has no keys"},
		"an empty set":      {`{"keys":[]}`, "has no keys"},
		"a private EC key":  {keySet(t, jose.JSONWebKey{Key: private}), "keys[0]: it is a private key"},
		"a private RSA key": {keySet(t, sound, jose.JSONWebKey{Key: rsaKey(t, 2048)}), "keys[1]: it is a private key"},
		"a symmetric key":   {keySet(t, jose.JSONWebKey{Key: []byte("secret-secret-secret")}), "keys[0]: it is a symmetric key"},
		"a small key":       {keySet(t, jose.JSONWebKey{Key: rsaKey(t, 1024).Public()}), "has 1024 bits, fewer than 2048"},
		"another type":      {`{"keys":[{"kty":"XYZ"}]}`, "keys[0]: it is not a key"},
		"a text":            {`{"keys":["x"]}`, "keys[0]: it is not a key"},
		"off the curve":     {`{"keys":[{"kty":"EC","crv":"P-256","x":"` + strings.Repeat("A", 43) + `","y":"` + strings.Repeat("A", 43) + `"}]}`, "keys[0]: it is not a key"},
		"HS256":             {with(func(k *jose.JSONWebKey) { k.Algorithm = "HS256" }), `keys[1]: alg: "HS256" is none of RS256`},
		"none":              {with(func(k *jose.JSONWebKey) { k.Algorithm = "none" }), `alg: "none"`},
		"for encryption":    {with(func(k *jose.JSONWebKey) { k.Use = "enc" }), `keys[1]: use: "enc" is not sig`},
		"too many":          {keySet(t, slicesOf(sound, maxKeys+1)...), "it has 17 keys, more than 16"},
		"too large":         {fmt.Sprintf(`{"x":%q}`, strings.Repeat("x", maxKeySet)), "more than 32768"},
	} {
		_, err := ParseKeys(c.text)
		require.ErrorContains(t, err, c.says, name)
		assert.NotContains(t, err.Error(), "secret-secret", name)
	}
}

func slicesOf(key jose.JSONWebKey, n int) (keys []jose.JSONWebKey) {
	for range n {
		keys = append(keys, key)
	}
	return keys
}

func FuzzParseKeys(f *testing.F) {
	key := selfsigned.Key(f)
	f.Add(keySet(f, jose.JSONWebKey{Key: key.Public(), KeyID: "k", Use: "sig"}))
	f.Add(keySet(f, jose.JSONWebKey{Key: key}))
	f.Add(`{"keys":[{"kty":"oct","k":"AA"}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		keys, err := ParseKeys(text)
		if err != nil {
			return
		}
		again, err := ParseKeys(keys.String())
		if err != nil || again.String() != keys.String() || len(again.public) == 0 {
			t.Fatalf("not the same keys: %v", err)
		}
	})
}

func FuzzUnverifiedIssuer(f *testing.F) {
	f.Add("e30.eyJpc3MiOiJhIn0.x")
	f.Fuzz(func(t *testing.T, raw string) {
		if issuer := UnverifiedIssuer(raw); issuer != "" && strings.Count(raw, ".") != 2 {
			t.Fatal("read from what is no token")
		}
	})
}
