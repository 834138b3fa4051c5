package release

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"aead.dev/minisign"
)

// SecretKey is a maintainer's signing key.
type SecretKey struct{ key minisign.PrivateKey }

// ErrPassphrase means that a key file needs a passphrase, or another one.
var ErrPassphrase = errors.New("the passphrase is not that of the key")

// ParseSecretKey decodes a key file of `minisign -G`, or of `minisign -G -W`, which has no
// passphrase. Decryption takes 1 GiB of memory for some seconds: minisign makes guessing that
// expensive.
func ParseSecretKey(file []byte, passphrase string) (SecretKey, error) {
	if len(file) > MaxSignature {
		return SecretKey{}, fmt.Errorf("no key file of minisign: larger than %d bytes", MaxSignature)
	}
	if !minisign.IsEncrypted(file) {
		var key minisign.PrivateKey
		if err := key.UnmarshalText(file); err != nil {
			return SecretKey{}, fmt.Errorf("no key file of minisign: %w", err)
		}
		return SecretKey{key}, nil
	}
	if passphrase == "" {
		return SecretKey{}, fmt.Errorf("%w: there is none, and the key file is encrypted", ErrPassphrase)
	}
	key, err := minisign.DecryptKey(passphrase, file)
	if err != nil {
		return SecretKey{}, ErrPassphrase // the library cannot distinguish a wrong one from a broken file
	}
	return SecretKey{key}, nil
}

// Public returns the key that others check with.
func (s SecretKey) Public() PublicKey {
	return s.key.Public().(minisign.PublicKey) //nolint:forcetypeassert // documented by the library
}

// Sign returns the signature of data, a .minisig file. The comment is signed too, and minisign
// shows it on verification. The same input gives the same bytes. The signature has the hashed form,
// which newer versions of minisign create and may require (-H).
func (s SecretKey) Sign(data []byte, comment string) []byte {
	hashed := minisign.NewReader(bytes.NewReader(data))
	_, _ = io.Copy(io.Discard, hashed) // reading from memory does not fail
	return hashed.SignWithComments(s.key, comment, fmt.Sprintf("signature of pipeops release key %016X", s.key.ID()))
}
