package imagesignature

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"strings"

	bundlepb "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	commonpb "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	rekorpb "github.com/sigstore/protobuf-specs/gen/pb-go/rekor/v1"
	"github.com/sigstore/sigstore-go/pkg/bundle"
	"github.com/sigstore/sigstore-go/pkg/verify"
)

// signature is one that a registry has of an image.
type signature struct {
	bundle  *bundle.Bundle
	payload []byte // of simple signing; nil if the bundle has a statement
	wrong   error  // why it cannot be read
}

// The types of what cosign signs, and of what it is kept in.
const (
	simpleMedia = "application/vnd.dev.cosign.simplesigning.v1+json"
	simpleType  = "cosign container image signature"
	bundleMedia = "application/vnd.dev.sigstore.bundle"
	emptyMedia  = "application/vnd.oci.empty.v1+json" // what some registries call a bundle
	// signPredicate tells a signature from an attestation, such as a list of components, that the
	// same signer may have signed.
	signPredicate = "https://sigstore.dev/cosign/sign/v1"
)

// about returns what has to be signed: a payload that names the image, or its digest.
func (s signature) about(digest string) (func() verify.ArtifactPolicyOption, error) {
	if s.wrong != nil {
		return nil, s.wrong
	}
	if s.payload == nil {
		sum, err := hex.DecodeString(strings.TrimPrefix(digest, "sha256:"))
		return func() verify.ArtifactPolicyOption { return verify.WithArtifactDigest("sha256", sum) }, err
	}
	var p struct {
		Critical struct {
			Image struct {
				Digest string `json:"docker-manifest-digest"`
			} `json:"image"`
			Type string `json:"type"`
		} `json:"critical"`
	}
	if json.Unmarshal(s.payload, &p) != nil || p.Critical.Type != simpleType || p.Critical.Image.Digest != digest {
		return nil, errors.New("the signature is of something else than this image")
	}
	return func() verify.ArtifactPolicyOption { return verify.WithArtifact(bytes.NewReader(s.payload)) }, nil
}

// bundleSignature returns the signature in a bundle of Sigstore, which holds an in-toto statement;
// false for another one.
func bundleSignature(text []byte) (signature, bool) {
	b := &bundle.Bundle{}
	if err := b.UnmarshalJSON(text); err != nil {
		return signature{wrong: errors.New("the bundle cannot be read: " + err.Error())}, true
	}
	envelope, err := b.Envelope()
	if err != nil {
		return signature{}, false
	}
	statement, err := envelope.Statement()
	return signature{bundle: b}, err == nil && statement.GetPredicateType() == signPredicate
}

// The annotations of a layer with a payload of simple signing.
const (
	signatureNote   = "dev.cosignproject.cosign/signature"
	certificateNote = "dev.sigstore.cosign/certificate"
	logNote         = "dev.sigstore.cosign/bundle"
	timeNote        = "dev.sigstore.cosign/rfc3161timestamp"
)

// simpleSignature returns a signature over a payload of simple signing. Its annotations become a
// bundle of version 0.1, which has the same parts.
func simpleSignature(payload []byte, notes map[string]string) signature {
	raw, err := base64.StdEncoding.DecodeString(notes[signatureNote])
	if err != nil {
		return signature{wrong: errors.New("the signature is not base64")}
	}
	material := &bundlepb.VerificationMaterial{
		Content: &bundlepb.VerificationMaterial_PublicKey{PublicKey: &commonpb.PublicKeyIdentifier{}},
	}
	if text := notes[certificateNote]; text != "" {
		block, _ := pem.Decode([]byte(text))
		if block == nil {
			return signature{wrong: errors.New("the certificate of the signature is not PEM")}
		}
		material.Content = &bundlepb.VerificationMaterial_Certificate{Certificate: &commonpb.X509Certificate{RawBytes: block.Bytes}}
		if err := logged(material, notes); err != nil {
			return signature{wrong: err}
		}
	}
	sum := sha256.Sum256(payload)
	b, err := bundle.NewBundle(&bundlepb.Bundle{
		MediaType: bundleMedia + "+json;version=0.1", VerificationMaterial: material,
		Content: &bundlepb.Bundle_MessageSignature{MessageSignature: &commonpb.MessageSignature{
			MessageDigest: &commonpb.HashOutput{Algorithm: commonpb.HashAlgorithm_SHA2_256, Digest: sum[:]}, Signature: raw,
		}},
	})
	if err != nil {
		err = errors.New("the signature cannot be read: " + err.Error())
	}
	return signature{bundle: b, payload: payload, wrong: err}
}

// logged adds the entry of the transparency log and the timestamp.
func logged(material *bundlepb.VerificationMaterial, notes map[string]string) error {
	if text := notes[logNote]; text != "" {
		var entry struct {
			Promise []byte `json:"SignedEntryTimestamp"`
			Payload struct {
				Body           []byte `json:"body"`
				IntegratedTime int64  `json:"integratedTime"`
				LogIndex       int64  `json:"logIndex"`
				LogID          string `json:"logID"`
			} `json:"Payload"`
		}
		var kind struct {
			Kind    string `json:"kind"`
			Version string `json:"apiVersion"`
		}
		err := errors.Join(json.Unmarshal([]byte(text), &entry), json.Unmarshal(entry.Payload.Body, &kind))
		id, wrong := hex.DecodeString(entry.Payload.LogID)
		if errors.Join(err, wrong) != nil {
			return errors.New("the entry of the transparency log cannot be read")
		}
		material.TlogEntries = []*rekorpb.TransparencyLogEntry{{
			LogIndex: entry.Payload.LogIndex, LogId: &commonpb.LogId{KeyId: id}, IntegratedTime: entry.Payload.IntegratedTime,
			KindVersion:       &rekorpb.KindVersion{Kind: kind.Kind, Version: kind.Version},
			InclusionPromise:  &rekorpb.InclusionPromise{SignedEntryTimestamp: entry.Promise},
			CanonicalizedBody: entry.Payload.Body,
		}}
	}
	if text := notes[timeNote]; text != "" {
		var stamp struct {
			Signed []byte `json:"SignedRFC3161Timestamp"`
		}
		if json.Unmarshal([]byte(text), &stamp) != nil {
			return errors.New("the timestamp cannot be read")
		}
		material.TimestampVerificationData = &bundlepb.TimestampVerificationData{
			Rfc3161Timestamps: []*commonpb.RFC3161SignedTimestamp{{SignedTimestamp: stamp.Signed}},
		}
	}
	return nil
}
