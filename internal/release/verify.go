package release

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	// The format has to be the one of the minisign program, down to its
	// comments; this is the library that its author's site lists for Go.
	"aead.dev/minisign"
)

// ErrUntrusted is that of everything whose signatures do not prove that enough of
// the trusted keys made them.
var ErrUntrusted = errors.New("not signed by a trusted key")

// linesOfSignature is the length of one signature; a .minisig file has one after the other.
const linesOfSignature = 4

// PublicKey is a maintainer's: 56 characters of base64, as minisign prints it.
type PublicKey = minisign.PublicKey

// Trust is the rule for the signatures that a release needs.
type Trust struct {
	Keys []PublicKey
	// Signatures is how many of the keys must have signed; 0 is 1. A key counts once.
	Signatures int
}

// ParseKeys parses public keys separated by commas, the form in which a build is stamped with them.
// An empty text contains no key. It refuses two keys with the same ID: they would count as two.
func ParseKeys(list string) ([]PublicKey, error) {
	var keys []PublicKey
	seen := map[uint64]bool{}
	for text := range strings.SplitSeq(list, ",") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		var key PublicKey
		if err := key.UnmarshalText([]byte(text)); err != nil {
			return nil, fmt.Errorf("release key %q: %w (want: the second line of minisign's .pub file)", text, err)
		}
		if seen[key.ID()] {
			return nil, fmt.Errorf("release key %q: another key in the list has the same ID, %016X (want: each key once)", text, key.ID())
		}
		seen[key.ID()] = true
		keys = append(keys, key)
	}
	return keys, nil
}

// Open returns the manifest in data, once sig has proven that enough keys signed it. It does not
// check the manifest's age: compare Version with the expected one, and call CheckExpiry before an
// installation.
func (t Trust) Open(data, sig []byte) (*Manifest, error) {
	if len(data) > MaxManifest {
		return nil, fmt.Errorf("%s: more than %d bytes (fix: check where it comes from)", ManifestName, MaxManifest)
	}
	if err := t.Verify(data, sig); err != nil {
		return nil, fmt.Errorf("%s: %w", ManifestName, err)
	}
	return Decode(data)
}

// Verify finds out whether enough keys signed data. sig is a .minisig file with one signature or
// several. It ignores those of unknown keys, and refuses all of them when a known key's is wrong.
func (t Trust) Verify(data, sig []byte) error {
	if len(t.Keys) == 0 {
		return fmt.Errorf("%w: this build knows no key (fix: a build of `make release`, which stamps one)", ErrUntrusted)
	}
	parts, err := split(sig)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUntrusted, err)
	}
	signed, strangers := map[uint64]bool{}, map[uint64]bool{}
	for _, part := range parts {
		key, known := t.key(part.id)
		switch {
		case !known:
			strangers[part.id] = true
		case minisign.Verify(key, data, part.text):
			signed[part.id] = true
		default:
			return fmt.Errorf("%w: the signature of key %016X does not fit: the file was changed after it was signed", ErrUntrusted, part.id)
		}
	}
	return t.enough(signed, strangers)
}

// enough compares the keys that signed with the number of signatures that are needed.
func (t Trust) enough(signed, strangers map[uint64]bool) error {
	needed := max(1, t.Signatures)
	switch {
	case len(signed) >= needed:
		return nil
	case len(signed) == 0:
		return fmt.Errorf("%w: it was signed by key %s, trusted is %s", ErrUntrusted, ids(strangers), ids(t.ids()))
	}
	return fmt.Errorf("%w: %d of the %d signatures that are needed: it was signed by key %s, trusted is %s (fix: have another of these keys sign it)",
		ErrUntrusted, len(signed), needed, ids(signed), ids(t.ids()))
}

func (t Trust) key(id uint64) (PublicKey, bool) {
	for _, key := range t.Keys {
		if key.ID() == id {
			return key, true
		}
	}
	return PublicKey{}, false
}

func (t Trust) ids() map[uint64]bool {
	all := map[uint64]bool{}
	for _, key := range t.Keys {
		all[key.ID()] = true
	}
	return all
}

// signature is one of a .minisig file.
type signature struct {
	id   uint64 // of the key, as the file claims
	text []byte
}

// Signers returns the IDs of the keys that a .minisig file claims as signers, without proof.
func Signers(sig []byte) ([]uint64, error) {
	parts, err := split(sig)
	if err != nil {
		return nil, err
	}
	all := make([]uint64, 0, len(parts))
	for _, part := range parts {
		all = append(all, part.id)
	}
	return all, nil
}

// split takes the signatures of a .minisig file apart.
func split(sig []byte) (parts []signature, err error) {
	if len(sig) > MaxSignature {
		return nil, fmt.Errorf("the signature is larger than %d bytes", MaxSignature)
	}
	lines := strings.Split(strings.TrimRight(string(sig), "\r\n"), "\n")
	for len(lines) > 0 {
		n := min(linesOfSignature, len(lines))
		text := []byte(strings.Join(lines[:n], "\n") + "\n")
		lines = lines[n:]
		var s minisign.Signature
		if err := s.UnmarshalText(text); err != nil {
			return nil, fmt.Errorf("signature %d is none of minisign's: %w", len(parts)+1, err)
		}
		parts = append(parts, signature{id: s.KeyID, text: text})
	}
	return parts, nil
}

// ids returns IDs as minisign prints them, in order.
func ids(keys map[uint64]bool) string {
	all := make([]string, 0, len(keys))
	for _, id := range slices.Sorted(maps.Keys(keys)) {
		all = append(all, fmt.Sprintf("%016X", id))
	}
	return strings.Join(all, ", ")
}
