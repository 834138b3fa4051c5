package signature

import (
	"bytes"
	"crypto/sha256"
	"encoding/asn1"
	"encoding/pem"
	"errors"

	"github.com/digitorus/pkcs7"
	bundlepb "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	commonpb "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	rekorpb "github.com/sigstore/protobuf-specs/gen/pb-go/rekor/v1"
	"github.com/sigstore/sigstore-go/pkg/bundle"
	"github.com/sigstore/sigstore-go/pkg/verify"
	"google.golang.org/protobuf/proto"

	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/internal/sigstore"
)

// oidEntry is the attribute in which gitsign keeps the entry of the transparency log as a
// TransparencyLogEntry of Rekor. It does so with rekorMode=offline.
var oidEntry = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57264, 3, 1}

// cms is a signature of gitsign (RFC 5652): a certificate signs attributes, of which one is the
// digest of the object.
type cms struct {
	signed []byte // the attributes
	digest []byte // of the object
	bundle *bundle.Bundle
}

var (
	errCMS     = errors.New("has an X.509 signature that cannot be read, or not as gitsign makes it")
	errNoEntry = errors.New("has a signature of gitsign without its entry in the transparency log")
)

func readCMS(armoured []byte) (c cms, err error) {
	block, rest := pem.Decode(armoured)
	if block == nil || len(block.Headers) > 0 || len(bytes.TrimSpace(rest)) > 0 {
		return c, errCMS
	}
	p, err := pkcs7.Parse(block.Bytes)
	if err != nil || len(p.Signers) != 1 || len(p.Content) > 0 || p.GetOnlySigner() == nil {
		return c, errCMS
	}
	signer := p.Signers[0]
	var kind asn1.ObjectIdentifier
	if err := errors.Join(
		p.UnmarshalSignedAttribute(pkcs7.OIDAttributeContentType, &kind),
		p.UnmarshalSignedAttribute(pkcs7.OIDAttributeMessageDigest, &c.digest),
	); err != nil || !kind.Equal(pkcs7.OIDData) || !signer.DigestAlgorithm.Algorithm.Equal(pkcs7.OIDDigestAlgorithmSHA256) {
		return c, errCMS
	}
	if c.signed, err = asn1.MarshalWithParams(signer.AuthenticatedAttributes, "set"); err != nil {
		return c, errCMS
	}
	entry := &rekorpb.TransparencyLogEntry{}
	err = errNoEntry
	for _, a := range signer.UnauthenticatedAttributes {
		var text []byte
		if !a.Type.Equal(oidEntry) {
			continue
		}
		if rest, wrong := asn1.Unmarshal(a.Value.Bytes, &text); wrong != nil || len(rest) > 0 || proto.Unmarshal(text, entry) != nil {
			return c, errCMS
		}
		err = nil
	}
	if err != nil {
		return c, err
	}
	sum := sha256.Sum256(c.signed)
	c.bundle, err = bundle.NewBundle(&bundlepb.Bundle{
		MediaType: "application/vnd.dev.sigstore.bundle.v0.3+json",
		VerificationMaterial: &bundlepb.VerificationMaterial{
			Content:     &bundlepb.VerificationMaterial_Certificate{Certificate: &commonpb.X509Certificate{RawBytes: p.GetOnlySigner().Raw}},
			TlogEntries: []*rekorpb.TransparencyLogEntry{entry},
		},
		Content: &bundlepb.Bundle_MessageSignature{MessageSignature: &commonpb.MessageSignature{
			MessageDigest: &commonpb.HashOutput{Algorithm: commonpb.HashAlgorithm_SHA2_256, Digest: sum[:]}, Signature: signer.EncryptedDigest,
		}},
	})
	if err != nil {
		return c, errCMS
	}
	return c, nil
}

// gitsign verifies a keyless signature.
func (s Signers) gitsign(o object) error {
	c, err := readCMS(o.signature)
	sum := sha256.Sum256(o.payload)
	switch {
	case err != nil:
		return refuse(Unsupported, "%v", err)
	case !bytes.Equal(sum[:], c.digest):
		return refuse(Mismatch, "has a signature of something else: it, or the signature, was altered")
	}
	why := ""
	var away error
	for _, k := range s.Keys {
		if k.keyless.ID == "" {
			continue
		}
		v := k.keyless.Verifier
		if v == nil {
			if v, away = s.public(); away != nil {
				continue
			}
		}
		if _, err = v.Verify(c.bundle, verify.NewPolicy(verify.WithArtifact(bytes.NewReader(c.signed)), k.keyless.Policy)); err == nil {
			return nil
		}
		why += "; " + k.keyless.Text + ": " + printable.Shorten(printable.Text(sigstore.Reason(err)), maxReason)
	}
	switch {
	case away != nil:
		return refuse(Unavailable, "cannot be verified: %v", away)
	case why == "":
		return refuse(NotListed, "is signed keyless, and no listed signer is")
	}
	return refuse(NotListed, "has a keyless signature that no listed signer's is%s", printable.Shorten(why, maxReasons))
}

// Bounds of what a refusal says.
const (
	maxReason  = 300
	maxReasons = 1200
)
