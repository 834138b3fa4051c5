package release

import (
	"errors"
	"fmt"
	"strings"

	// The format has to be the one of the minisign program, down to its
	// comments; this is the library that its author's site lists for Go.
	"aead.dev/minisign"
)

// ErrUntrusted is that of everything whose signature does not prove that one of
// the trusted keys made it.
var ErrUntrusted = errors.New("not signed by a trusted key")

// PublicKey is a maintainer's: 56 characters of base64, as minisign prints it.
type PublicKey = minisign.PublicKey

// ParseKeys parses public keys separated by commas, the form in which a build is stamped with them.
// An empty text contains no key.
func ParseKeys(list string) ([]PublicKey, error) {
	var keys []PublicKey
	for text := range strings.SplitSeq(list, ",") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		var key PublicKey
		if err := key.UnmarshalText([]byte(text)); err != nil {
			return nil, fmt.Errorf("release key %q: %w (want: the second line of minisign's .pub file)", text, err)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// Open returns the manifest in data, once sig has proven that the owner of one of the keys signed
// it. It does not check the manifest's age: compare Version with the expected one.
func Open(data, sig []byte, keys ...PublicKey) (*Manifest, error) {
	if len(data) > MaxManifest {
		return nil, fmt.Errorf("%s: more than %d bytes (fix: check where it comes from)", ManifestName, MaxManifest)
	}
	if err := Verify(data, sig, keys...); err != nil {
		return nil, fmt.Errorf("%s: %w", ManifestName, err)
	}
	return decode(data)
}

// Verify finds out whether the owner of one of the keys signed data.
func Verify(data, sig []byte, keys ...PublicKey) error {
	if len(keys) == 0 {
		return fmt.Errorf("%w: this build knows no key (fix: a build of `make release`, which stamps one)", ErrUntrusted)
	}
	if len(sig) > MaxSignature {
		return fmt.Errorf("%w: the signature is larger than %d bytes", ErrUntrusted, MaxSignature)
	}
	var signature minisign.Signature
	if err := signature.UnmarshalText(sig); err != nil {
		return fmt.Errorf("%w: the signature is none of minisign's: %w", ErrUntrusted, err)
	}
	known := make([]string, 0, len(keys))
	for _, key := range keys {
		if key.ID() != signature.KeyID {
			known = append(known, fmt.Sprintf("%016X", key.ID()))
			continue
		}
		if minisign.Verify(key, data, sig) {
			return nil
		}
		return fmt.Errorf("%w: the signature of key %016X does not fit: the file was changed after it was signed", ErrUntrusted, signature.KeyID)
	}
	return fmt.Errorf("%w: it was signed by key %016X, trusted is %s", ErrUntrusted, signature.KeyID, strings.Join(known, ", "))
}
