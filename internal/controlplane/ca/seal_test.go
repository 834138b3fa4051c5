package ca

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSeal_BoundToKeyAndPurpose(t *testing.T) {
	key := NewKey()
	sealed, err := key.Seal([]byte("secret"), "ca 1")
	require.NoError(t, err)
	again, err := key.Seal([]byte("secret"), "ca 1")
	require.NoError(t, err)
	assert.NotEqual(t, sealed, again)

	same, err := ParseKey(key.Text() + "\n")
	require.NoError(t, err)
	text, err := same.Unseal(sealed, "ca 1")
	require.NoError(t, err)
	assert.Equal(t, "secret", string(text))

	for what, open := range map[string]func() ([]byte, error){
		"another purpose": func() ([]byte, error) { return key.Unseal(sealed, "ca 2") },
		"another key":     func() ([]byte, error) { return NewKey().Unseal(sealed, "ca 1") },
		"changed":         func() ([]byte, error) { return key.Unseal("A"+sealed[1:], "ca 1") },
		"cut":             func() ([]byte, error) { return key.Unseal(sealed[:8], "ca 1") },
		"no base64":       func() ([]byte, error) { return key.Unseal("?", "ca 1") },
	} {
		if _, err := open(); what != "changed" || sealed[0] != 'A' {
			require.ErrorIs(t, err, ErrSealed, what)
		}
	}
}

func TestKey_NeverPrinted(t *testing.T) {
	key := NewKey()
	for _, text := range []string{fmt.Sprint(key), fmt.Sprintf("%v %+v %#v %s", key, key, key, key), fmt.Sprintf("%+v", struct{ Key Key }{key})} {
		assert.NotContains(t, text, key.Text())
	}
	for _, text := range []string{"", "short", key.Text()[4:], key.Text() + key.Text()} {
		_, err := ParseKey(text)
		require.ErrorIs(t, err, ErrBadKey)
	}
}
