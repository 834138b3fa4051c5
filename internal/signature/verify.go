package signature

import (
	"bytes"
	"crypto"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	pgperrors "github.com/ProtonMail/go-crypto/openpgp/errors"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"
)

// gitNamespace keeps a signature of a file from being one of a commit.
const gitNamespace = "git"

func (s Signers) ssh(o object) error {
	block, rest := pem.Decode(o.signature)
	if block == nil || len(block.Headers) > 0 || len(bytes.TrimSpace(rest)) > 0 {
		return refuse(Unsupported, "has an SSH signature that cannot be read")
	}
	sig, err := sshsig.ParseSignature(block.Bytes)
	switch {
	case err != nil:
		return refuse(Unsupported, "has an SSH signature that cannot be read, or that uses SHA-1: %.200s", err)
	case !slices.ContainsFunc(s.Keys, func(k Key) bool { return k.ssh != nil && bytes.Equal(k.ssh.Marshal(), sig.PublicKey.Marshal()) }):
		return refuse(NotListed, "is signed by the SSH key %s, which is not listed", ssh.FingerprintSHA256(sig.PublicKey))
	}
	err = sshsig.Verify(bytes.NewReader(o.payload), sig, sig.PublicKey, sig.HashAlgorithm, gitNamespace)
	switch {
	case errors.Is(err, sshsig.ErrNamespaceMismatch):
		return refuse(Mismatch, "has an SSH signature that was made for %.100q, not for Git", sig.Namespace)
	case err != nil:
		return refuse(Mismatch, "has a signature of the SSH key %s that does not match: it, or the signature, was altered", ssh.FingerprintSHA256(sig.PublicKey))
	}
	return nil
}

// pgpHashes are those that signatures of commits may have. SHA-1 and MD5 are broken, and nothing
// signs with the others.
var pgpHashes = []crypto.Hash{crypto.SHA256, crypto.SHA384, crypto.SHA512, crypto.SHA3_256, crypto.SHA3_512}

func (s Signers) openPGP(o object, at time.Time) error {
	packets, sig := readSignature(o.signature)
	switch {
	case sig == nil || sig.SigType != packet.SigTypeBinary || sig.IssuerKeyId == nil:
		return refuse(Unsupported, "has an OpenPGP signature that cannot be read, or several")
	case !slices.Contains(pgpHashes, sig.Hash):
		return refuse(Unsupported, "has an OpenPGP signature with %v, which is too weak", sig.Hash)
	}
	var listed openpgp.EntityList
	for _, k := range s.Keys {
		if k.pgp.PrimaryKey != nil {
			listed = append(listed, &k.pgp)
		}
	}
	by := issuer(sig)
	_, err := openpgp.CheckDetachedSignature(listed, bytes.NewReader(o.payload), bytes.NewReader(packets), &packet.Config{Time: func() time.Time { return at }})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, pgperrors.ErrUnknownIssuer):
		return refuse(NotListed, "is signed by the OpenPGP key %s, which is not listed", by)
	case errors.Is(err, pgperrors.ErrKeyRevoked):
		return refuse(Revoked, "is signed by the OpenPGP key %s, which is revoked", by)
	case errors.Is(err, pgperrors.ErrKeyExpired):
		return refuse(Expired, "is signed by the OpenPGP key %s, which has expired", by)
	case errors.Is(err, pgperrors.ErrSignatureExpired):
		return refuse(Expired, "has a signature of the OpenPGP key %s that has expired, or is of the future", by)
	}
	return refuse(Mismatch, "has a signature of the OpenPGP key %s that does not match: it, or the signature, was altered", by)
}

// readSignature returns the packets of an armoured signature, and the only one of them; nil if
// there are others.
func readSignature(armoured []byte) ([]byte, *packet.Signature) {
	text := strings.TrimSpace(string(armoured))
	if strings.Count(text, "-----BEGIN ") != 1 || !strings.HasSuffix(text, "-----END PGP SIGNATURE-----") {
		return nil, nil
	}
	block, err := armor.Decode(strings.NewReader(text))
	if err != nil {
		return nil, nil
	}
	body, err := io.ReadAll(block.Body)
	if err != nil {
		return nil, nil
	}
	r := packet.NewReader(bytes.NewReader(body))
	first, err := r.Next()
	sig, ok := first.(*packet.Signature)
	if err != nil || !ok {
		return nil, nil
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		return nil, nil
	}
	return body, sig
}

// issuer returns the fingerprint of the key that a signature names, or its ID.
func issuer(sig *packet.Signature) string {
	if len(sig.IssuerFingerprint) > 0 {
		return fmt.Sprintf("%X", sig.IssuerFingerprint)
	}
	return fmt.Sprintf("%016X", *sig.IssuerKeyId)
}
