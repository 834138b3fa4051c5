package signature

import (
	"bytes"
	"crypto/rsa"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"golang.org/x/crypto/ssh"

	"github.com/pipeops/pipeops-vm-agent/internal/decode"
	"github.com/pipeops/pipeops-vm-agent/internal/sigstore"
)

// The bounds of keys.
const (
	MaxKeys    = 64
	maxKey     = 32 << 10
	minRSABits = 2048
)

// Key is a public key that signs commits, or a keyless signer.
type Key struct {
	Text string // as it was written

	keyless sigstore.Signer
	ssh     ssh.PublicKey
	owner   string         // of an SSH key
	pgp     openpgp.Entity // its primary key is nil for an SSH key
}

// ReadKey reads an SSH public key, as a line of authorized_keys or of allowed_signers, one OpenPGP
// public key in ASCII armour, or a keyless signer as an object in JSON.
func ReadKey(text string) (Key, error) {
	text = strings.TrimSpace(text)
	switch {
	case len(text) > maxKey:
		return Key{}, fmt.Errorf("has more than %d KiB: export it without the signatures of others (gpg --export-options export-minimal)", maxKey>>10)
	case strings.Contains(text, "PRIVATE KEY"):
		return Key{}, errors.New("is a private key: give the public one, and replace the key, which others may have read")
	case strings.HasPrefix(text, "-----BEGIN PGP PUBLIC KEY BLOCK-----"):
		return readOpenPGP(text)
	case strings.HasPrefix(text, "{"):
		return readKeyless(text)
	}
	return readSSH(text)
}

func readKeyless(text string) (Key, error) {
	var k struct {
		sigstore.Keyless
		TrustedRoot string `json:"trustedRoot"`
	}
	err := decode.LimitsFor(maxKey).CheckJSON([]byte(text))
	if err == nil {
		err = decode.Strict([]byte(text), &k)
	}
	if err != nil {
		return Key{}, fmt.Errorf("is not a keyless signer (identity or identityRegexp, issuer, trustedRoot): %w", err)
	}
	var root sigstore.Root
	if k.TrustedRoot != "" {
		if root, err = sigstore.ReadRoot(k.TrustedRoot); err != nil {
			return Key{}, fmt.Errorf("trustedRoot %w", err)
		}
	}
	signer, err := k.Signer(root)
	return Key{Text: text, keyless: signer}, err
}

// sshTypes are the types of SSH keys that sign. DSA and certificates are not among them.
var sshTypes = []string{
	ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521, ssh.KeyAlgoRSA,
	ssh.KeyAlgoSKED25519, ssh.KeyAlgoSKECDSA256,
}

const notAKey = "is not a public key: give a line such as `ssh-ed25519 AAAA… ann@example.com`, an ASCII-armoured OpenPGP public key, or identity and issuer"

func readSSH(text string) (Key, error) {
	fields := strings.Fields(text)
	at := slices.IndexFunc(fields, func(f string) bool { return slices.Contains(sshTypes, f) })
	if at < 0 || at > 2 || strings.ContainsAny(text, "\r\n") {
		return Key{}, errors.New(notAKey)
	}
	owner := ""
	for i, field := range fields[:at] {
		switch {
		case i == 0 && !strings.Contains(field, "=") && !strings.EqualFold(field, "cert-authority"):
			owner = field
		case field != `namespaces="git"`:
			return Key{}, fmt.Errorf("has the option %.40q: only namespaces=\"git\" is supported; remove a key from the policy when it ends", field)
		}
	}
	key, comment, _, _, err := ssh.ParseAuthorizedKey([]byte(strings.Join(fields[at:], " ")))
	if err != nil || key.Type() != fields[at] {
		return Key{}, errors.New(notAKey)
	}
	if c, ok := key.(ssh.CryptoPublicKey); ok {
		if r, ok := c.CryptoPublicKey().(*rsa.PublicKey); ok && r.N.BitLen() < minRSABits {
			return Key{}, fmt.Errorf("is an RSA key of %d bits: at least %d are needed", r.N.BitLen(), minRSABits)
		}
	}
	if owner == "" {
		owner = comment
	}
	return Key{Text: text, ssh: key, owner: owner}, nil
}

// readOpenPGP reads one key. Its own signatures may be SHA-1's, as those of old keys are: the
// cluster's owner vouches for the whole text.
func readOpenPGP(text string) (Key, error) {
	block, err := armor.Decode(strings.NewReader(text))
	if err != nil || strings.Count(text, "-----BEGIN ") != 1 {
		return Key{}, errors.New("is not one ASCII-armoured OpenPGP public key: give each key as an entry")
	}
	body, err := io.ReadAll(io.LimitReader(block.Body, maxKey))
	if err != nil {
		return Key{}, errors.New("is not an OpenPGP public key: its armour is broken")
	}
	entities, err := openpgp.ReadKeyRing(bytes.NewReader(body))
	if err != nil {
		return Key{}, fmt.Errorf("is not an OpenPGP public key that can be used: %w", err)
	}
	if len(entities) != 1 {
		return Key{}, errors.New("has several OpenPGP keys: give each key as an entry")
	}
	e := entities[0]
	if err := strong(e.PrimaryKey); err != nil {
		return Key{}, err
	}
	for _, sub := range e.Subkeys {
		if sub.Sig.FlagsValid && !sub.Sig.FlagSign { // it encrypts
			continue
		}
		if err := strong(sub.PublicKey); err != nil {
			return Key{}, err
		}
	}
	return Key{Text: text, pgp: *e}, nil
}

// strong refuses keys that are too weak to sign.
func strong(k *packet.PublicKey) error {
	switch k.PubKeyAlgo {
	case packet.PubKeyAlgoRSA, packet.PubKeyAlgoRSASignOnly:
		if bits, err := k.BitLength(); err != nil || bits < minRSABits {
			return fmt.Errorf("has an RSA key of %d bits: at least %d are needed", bits, minRSABits)
		}
	case packet.PubKeyAlgoDSA:
		return errors.New("has a DSA key, which is not supported")
	}
	return nil
}

// String returns the key's fingerprint and owner.
func (k Key) String() string {
	if k.keyless.ID != "" {
		return k.keyless.Text
	}
	if k.ssh != nil {
		return named(ssh.FingerprintSHA256(k.ssh), k.owner)
	}
	name := ""
	if id := k.pgp.PrimaryIdentity(); id != nil {
		name = id.Name
	}
	text := named(fmt.Sprintf("OpenPGP %X", k.pgp.PrimaryKey.Fingerprint), name)
	if sig, _ := k.pgp.PrimarySelfSignature(); sig != nil && sig.KeyLifetimeSecs != nil && *sig.KeyLifetimeSecs > 0 {
		text += " until " + k.pgp.PrimaryKey.CreationTime.Add(time.Duration(*sig.KeyLifetimeSecs)*time.Second).UTC().Format(time.DateOnly)
	}
	return text
}

// Ended reports whether the key signs nothing any more at that time.
func (k Key) Ended(at time.Time) bool {
	if k.pgp.PrimaryKey == nil {
		return false
	}
	sig, _ := k.pgp.PrimarySelfSignature()
	return k.pgp.Revoked(at) || sig == nil || k.pgp.PrimaryKey.KeyExpired(sig, at)
}

func named(fingerprint, owner string) string {
	if owner == "" {
		return fingerprint
	}
	return fmt.Sprintf("%s (%.100s)", fingerprint, owner)
}
