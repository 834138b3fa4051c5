//go:build !race

package release

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The race detector would see nothing here but scrypt, and take half a minute for it.
func TestAKeyThatMinisignEncryptedSigns(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 1 GiB of memory for some seconds")
	}
	key, err := ParseSecretKey(read(t, "encrypted.key"), passphrase)
	require.NoError(t, err)
	signsAsEncrypted(t, key)
}
