package imagesignature

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
)

// FuzzSignature: what a registry has of an image never passes without the key.
func FuzzSignature(f *testing.F) {
	ref, err := name.NewDigest("registry.example.com/web@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08")
	if err != nil {
		f.Fatal(err)
	}
	public, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(`{"critical":{"image":{"docker-manifest-digest":"`+ref.DigestStr()+`"},"type":"cosign container image signature"}}`), "AAAA")
	f.Add([]byte(`{"dsseEnvelope":{"payloadType":"application/vnd.in-toto+json","payload":"`+base64.StdEncoding.EncodeToString([]byte(
		`{"predicateType":"https://sigstore.dev/cosign/sign/v1","subject":[{"digest":{"sha256":"`+ref.DigestStr()[7:]+`"}}]}`))+`","signatures":[{"sig":"AAAA"}]}}`), "")
	f.Fuzz(func(t *testing.T, text []byte, encoded string) {
		for _, read := range []func() (signature, bool){
			func() (signature, bool) { return simpleSignature(text, encoded) },
			func() (signature, bool) { return bundleSignature(text) },
		} {
			s, ok := read()
			if !ok {
				continue
			}
			if (Key{public: public}).signed(s, ref) {
				t.Fatalf("%q passes", text)
			}
			_ = s.names(ref.DigestStr())
		}
	})
}
