package idtoken

import (
	"crypto/rand"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestLoginOf(t *testing.T) {
	a, b := rand.Text(), rand.Text()
	assert.Equal(t, LoginOf(a), LoginOf(a))
	assert.NotEqual(t, LoginOf(a), LoginOf(b))
	l := LoginOf(a)
	values := map[string]bool{a: true, l.State: true, l.Nonce: true, l.Verifier: true}
	assert.Len(t, values, 4)
	assert.GreaterOrEqual(t, len(l.Verifier), 43, "RFC 7636, section 4.1")
}
