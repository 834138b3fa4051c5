package imagesignature

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/sigstore/sigstore-go/pkg/testing/ca"
	"github.com/sigstore/sigstore-go/pkg/verify"

	"github.com/pipeops/pipeops-vm-agent/internal/sigstore"
)

// FuzzSignature: what a registry has of an image never passes without the key, or a certificate of
// the CA.
func FuzzSignature(f *testing.F) {
	ref, err := name.NewDigest("registry.example.com/web@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08")
	if err != nil {
		f.Fatal(err)
	}
	signers := fuzzSigners(f)
	f.Add([]byte(`{"critical":{"image":{"docker-manifest-digest":"`+ref.DigestStr()+`"},"type":"cosign container image signature"}}`), "AAAA", "", "", "")
	statement := base64.StdEncoding.EncodeToString([]byte(
		`{"predicateType":"https://sigstore.dev/cosign/sign/v1","subject":[{"digest":{"sha256":"` + ref.DigestStr()[7:] + `"}}]}`))
	for _, material := range []string{`"publicKey":{"hint":"x"}`, `"certificate":{"rawBytes":"AAAA"},"tlogEntries":[{}]`} {
		f.Add([]byte(`{"mediaType":"application/vnd.dev.sigstore.bundle.v0.3+json","verificationMaterial":{`+material+
			`},"dsseEnvelope":{"payloadType":"application/vnd.in-toto+json","payload":"`+statement+`","signatures":[{"sig":"AAAA"}]}}`), "", "", "", "")
	}
	f.Add([]byte("{}"), "AAAA", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
		`{"SignedEntryTimestamp":"AAAA","Payload":{"body":"eyJraW5kIjoiaGFzaGVkcmVrb3JkIiwiYXBpVmVyc2lvbiI6IjAuMC4xIn0=","integratedTime":1,"logIndex":1,"logID":"00"}}`,
		`{"SignedRFC3161Timestamp":"AAAA"}`)
	none := func() (*verify.Verifier, error) { return nil, errors.New("none") }
	f.Fuzz(func(t *testing.T, text []byte, encoded, certificate, entry, stamp string) {
		found := []signature{simpleSignature(text, map[string]string{signatureNote: encoded, certificateNote: certificate, logNote: entry, timeNote: stamp})}
		if s, ok := bundleSignature(text); ok {
			found = append(found, s)
		}
		for _, sig := range found {
			for _, s := range signers {
				if s.signed(sig, ref.DigestStr(), none) == nil {
					t.Fatalf("%q passes", text)
				}
			}
		}
	})
}

// fuzzSigners are a key, and an identity of sigstore-go's stand-in for Sigstore.
func fuzzSigners(f *testing.F) []Signer {
	f.Helper()
	public, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		f.Fatal(err)
	}
	key, err := ReadKey(string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})))
	if err != nil {
		f.Fatal(err)
	}
	virtual, err := ca.NewVirtualSigstore()
	if err != nil {
		f.Fatal(err)
	}
	v, err := sigstore.NewVerifier(virtual)
	if err != nil {
		f.Fatal(err)
	}
	identity, err := sigstore.Keyless{IdentityRegexp: ".*", Issuer: "https://accounts.example.com"}.Signer(sigstore.Root{})
	if err != nil {
		f.Fatal(err)
	}
	identity.Verifier = v
	return []Signer{key, Keyless(identity)}
}
