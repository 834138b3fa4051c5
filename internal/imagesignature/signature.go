package imagesignature

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
)

// signature is one that a registry has of an image.
type signature struct {
	message    []byte // what is signed
	signatures [][]byte
	names      func(digest string) bool // whether the message is about that image
}

// signed reports whether the key has signed that image.
func (k Key) signed(s signature, ref name.Digest) bool {
	return slices.ContainsFunc(s.signatures, func(sig []byte) bool { return k.verifies(s.message, sig) }) && s.names(ref.DigestStr())
}

// The types of what cosign signs, and of what it is kept in.
const (
	simpleMedia   = "application/vnd.dev.cosign.simplesigning.v1+json"
	simpleType    = "cosign container image signature"
	bundleMedia   = "application/vnd.dev.sigstore.bundle"
	emptyMedia    = "application/vnd.oci.empty.v1+json" // what some registries call a bundle
	statementType = "application/vnd.in-toto+json"
	// signPredicate tells a signature from an attestation, such as a list of components, that the
	// same key may have signed.
	signPredicate = "https://sigstore.dev/cosign/sign/v1"
)

// simpleSignature returns a signature over a payload of simple signing.
func simpleSignature(payload []byte, encoded string) (signature, bool) {
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || len(raw) == 0 {
		return signature{}, false
	}
	return signature{message: payload, signatures: [][]byte{raw}, names: func(digest string) bool {
		var p struct {
			Critical struct {
				Image struct {
					Digest string `json:"docker-manifest-digest"`
				} `json:"image"`
				Type string `json:"type"`
			} `json:"critical"`
		}
		return json.Unmarshal(payload, &p) == nil && p.Critical.Type == simpleType && p.Critical.Image.Digest == digest
	}}, true
}

// bundleSignature returns the signature of a bundle of Sigstore, which holds a DSSE envelope with
// an in-toto statement.
func bundleSignature(text []byte) (signature, bool) {
	var b struct {
		Envelope struct {
			Type       string `json:"payloadType"`
			Payload    []byte `json:"payload"`
			Signatures []struct {
				Sig []byte `json:"sig"`
			} `json:"signatures"`
		} `json:"dsseEnvelope"`
	}
	var statement struct {
		Predicate string `json:"predicateType"`
		Subject   []struct {
			Digest map[string]string `json:"digest"`
		} `json:"subject"`
	}
	if json.Unmarshal(text, &b) != nil || b.Envelope.Type != statementType || len(b.Envelope.Signatures) == 0 ||
		json.Unmarshal(b.Envelope.Payload, &statement) != nil || statement.Predicate != signPredicate {
		return signature{}, false
	}
	s := signature{message: preAuthentication(b.Envelope.Type, b.Envelope.Payload), names: func(digest string) bool {
		for _, subject := range statement.Subject {
			if subject.Digest["sha256"] == strings.TrimPrefix(digest, "sha256:") {
				return true
			}
		}
		return false
	}}
	for _, by := range b.Envelope.Signatures {
		s.signatures = append(s.signatures, by.Sig)
	}
	return s, len(s.signatures) <= maxSignatures
}

// preAuthentication is what DSSE signs (PAE).
func preAuthentication(kind string, payload []byte) []byte {
	return fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(kind), kind, len(payload), payload)
}
