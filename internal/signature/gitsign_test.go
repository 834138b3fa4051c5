package signature_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"encoding/json"
	"encoding/pem"
	"strings"
	"testing"
	"time"

	"github.com/digitorus/pkcs7"
	"github.com/go-git/go-git/v5/plumbing"
	bundlepb "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	commonpb "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	sigstoresign "github.com/sigstore/sigstore-go/pkg/sign"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/pipeops/pipeops-vm-agent/internal/signature"
	"github.com/pipeops/pipeops-vm-agent/test/sigstoretest"
)

const (
	ann     = "ann@example.com"
	issuer  = "https://accounts.example.com"
	payload = "tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\nauthor A <a@example.com> 1790000000 +0000\ncommitter A <a@example.com> 1790000000 +0000\n\nchange\n"
)

// gitsigned signs as gitsign does with rekorMode=offline: the log has the signed attributes, and
// the signature has the log's entry.
func gitsigned(t *testing.T, s *sigstoretest.Sigstore, object, identity, issuer string, logged bool) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(s.Issue(key.Public(), identity, issuer))
	require.NoError(t, err)
	data, err := pkcs7.NewSignedData([]byte(object))
	require.NoError(t, err)
	data.SetDigestAlgorithm(pkcs7.OIDDigestAlgorithmSHA256)
	require.NoError(t, data.AddSigner(cert, key, pkcs7.SignerInfoConfig{}))
	data.Detach()
	signer := &data.GetSignedData().SignerInfos[0]
	attributes, err := asn1.MarshalWithParams(signer.AuthenticatedAttributes, "set")
	require.NoError(t, err)
	sum := sha256.Sum256(attributes)
	b := &bundlepb.Bundle{
		VerificationMaterial: &bundlepb.VerificationMaterial{},
		Content: &bundlepb.Bundle_MessageSignature{MessageSignature: &commonpb.MessageSignature{
			MessageDigest: &commonpb.HashOutput{Algorithm: commonpb.HashAlgorithm_SHA2_256, Digest: sum[:]}, Signature: signer.EncryptedDigest,
		}},
	}
	if logged {
		rekor := sigstoresign.NewRekor(&sigstoresign.RekorOptions{BaseURL: s.URL})
		require.NoError(t, rekor.GetTransparencyLogEntry(t.Context(), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}), b))
		entry, err := proto.Marshal(b.GetVerificationMaterial().GetTlogEntries()[0])
		require.NoError(t, err)
		require.NoError(t, signer.SetUnauthenticatedAttributes([]pkcs7.Attribute{{Type: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57264, 3, 1}, Value: entry}}))
	}
	der, err := data.Finish()
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "SIGNED MESSAGE", Bytes: der}))
}

// commitWith returns a commit with a signature.
func commitWith(object, armoured string) signature.Commit {
	head, message, _ := strings.Cut(object, "\n\n")
	raw := head + "\ngpgsig " + strings.ReplaceAll(strings.TrimSuffix(armoured, "\n"), "\n", "\n ") + "\n\n" + message
	return signature.Commit{Hash: plumbing.ComputeHash(plumbing.CommitObject, []byte(raw)).String(), Raw: []byte(raw)}
}

func keyless(t *testing.T, s *sigstoretest.Sigstore, identity, issuer string) signature.Key {
	t.Helper()
	text, err := json.Marshal(map[string]string{"identity": identity, "issuer": issuer, "trustedRoot": s.TrustedRoot()})
	require.NoError(t, err)
	key, err := signature.ReadKey(string(text))
	require.NoError(t, err)
	return key
}

// TestVerify_Gitsign: keyless signatures of commits, by the stand-in for Sigstore.
func TestVerify_Gitsign(t *testing.T) {
	t.Parallel()
	s, other := sigstoretest.New(t), sigstoretest.New(t)
	listed := keyless(t, s, ann, issuer)
	good := gitsigned(t, s, payload, ann, issuer, true)
	key, err := signature.ReadKey("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAINNwMHM8lLcve+HMdKmjaanRnkdOE0Sm3ZUxkjv5LTgg ann@example.com")
	require.NoError(t, err)
	for name, c := range map[string]struct {
		commit signature.Commit
		keys   []signature.Key
		want   signature.Reason
		says   string
	}{
		"signed":                  {commitWith(payload, good), []signature.Key{key, listed}, "", ""},
		"altered":                 {commitWith(strings.Replace(payload, "change", "chance", 1), good), nil, signature.Mismatch, "a signature of something else"},
		"another identity":        {commitWith(payload, gitsigned(t, s, payload, "bob@example.com", issuer, true)), nil, signature.NotListed, `got "bob@example.com"`},
		"an identity around it":   {commitWith(payload, gitsigned(t, s, payload, "x"+ann, issuer, true)), nil, signature.NotListed, "expected SAN value"},
		"another issuer":          {commitWith(payload, gitsigned(t, s, payload, ann, "https://other.example.com", true)), nil, signature.NotListed, "expected issuer value"},
		"another CA":              {commitWith(payload, gitsigned(t, other, payload, ann, issuer, true)), nil, signature.NotListed, "not enough verified log entries"},
		"not logged":              {commitWith(payload, gitsigned(t, s, payload, ann, issuer, false)), nil, signature.Unsupported, "without its entry in the transparency log"},
		"keys alone are listed":   {commitWith(payload, good), []signature.Key{key}, signature.NotListed, "is signed keyless, and no listed signer is"},
		"text after the armour":   {commitWith(payload, good+"x\n"), nil, signature.Unsupported, "cannot be read"},
		"no signature in the CMS": {commitWith(payload, "-----BEGIN SIGNED MESSAGE-----\nMAA=\n-----END SIGNED MESSAGE-----\n"), nil, signature.Unsupported, "cannot be read"},
		"the root is not known":   {commitWith(payload, good), []signature.Key{ofPublic(t)}, signature.Unavailable, "no root of trust"},
	} {
		keys := c.keys
		if keys == nil {
			keys = []signature.Key{listed}
		}
		refused := signature.Signers{Keys: keys, Source: "a test"}.Verify(c.commit, time.Now())
		if c.want == "" {
			require.Nil(t, refused, name)
			continue
		}
		require.NotNil(t, refused, name)
		assert.Equal(t, c.want, refused.Reason, "%s: %s", name, refused.Message)
		assert.Contains(t, refused.Message, c.says, name)
		assert.NotEmpty(t, refused.Fix, name)
	}
	s.Late = 30 * time.Minute
	refused := signature.Signers{Keys: []signature.Key{listed}}.Verify(commitWith(payload, gitsigned(t, s, payload, ann, issuer, true)), time.Now())
	require.NotNil(t, refused, "signed after the certificate expired")
	assert.Contains(t, refused.Message, "outside certificate validity")
}

// ofPublic is a keyless signer of the public Sigstore.
func ofPublic(t *testing.T) signature.Key {
	t.Helper()
	key, err := signature.ReadKey(`{"identity":"` + ann + `","issuer":"` + issuer + `"}`)
	require.NoError(t, err)
	return key
}

func TestReadKey_Keyless(t *testing.T) {
	t.Parallel()
	assert.Equal(t, `keyless identity "ann@example.com" of issuer https://accounts.example.com`, ofPublic(t).String())
	assert.False(t, ofPublic(t).Ended(time.Now()))
	for text, says := range map[string]string{
		"{":                   "is not a keyless signer",
		`{"identity":"a"}`:    "issuer has to be the https URL",
		`{"subject":"a"}`:     "unknown field",
		`{"trustedRoot":"x"}`: "trustedRoot is not a trusted_root.json",
	} {
		_, err := signature.ReadKey(text)
		require.ErrorContains(t, err, says)
	}
}

// FuzzVerify_Gitsign: what is not signed never passes, and nothing panics.
func FuzzVerify_Gitsign(f *testing.F) {
	key, err := signature.ReadKey(`{"identityRegexp":".*","issuer":"` + issuer + `"}`)
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte("\x30\x00"))
	f.Add([]byte("\x30\x80\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x07\x02\xa0\x80\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, der []byte) {
		armoured := string(pem.EncodeToMemory(&pem.Block{Type: "SIGNED MESSAGE", Bytes: der}))
		if (signature.Signers{Keys: []signature.Key{key}}).Verify(commitWith(payload, armoured), time.Now()) == nil {
			t.Fatalf("%x passes", der)
		}
	})
}
