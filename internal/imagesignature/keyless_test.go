package imagesignature_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/sigstore/sigstore-go/pkg/sign"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/imagesignature"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	keyless "github.com/pipeops/pipeops-vm-agent/internal/sigstore"
	"github.com/pipeops/pipeops-vm-agent/test/sigstoretest"
)

const (
	workflow = "https://github.com/acme/shop/.github/workflows/release.yaml@refs/heads/main"
	github   = "https://token.actions.githubusercontent.com"
)

func signerOf(t *testing.T, s *sigstoretest.Sigstore, k keyless.Keyless) imagesignature.Signer {
	t.Helper()
	trusted, err := keyless.ReadRoot(s.TrustedRoot())
	require.NoError(t, err)
	signer, err := k.Signer(trusted)
	require.NoError(t, err)
	return imagesignature.Keyless(signer)
}

func (p *place) signKeyless(ref name.Digest, s *sigstoretest.Sigstore, identity, issuer string, options ...func(*sign.BundleOptions)) {
	p.t.Helper()
	p.bundle(ref, s.Sign(statement(ref.DigestStr(), signPredicate), identity, issuer, options...))
}

func stamped(s *sigstoretest.Sigstore) func(*sign.BundleOptions) {
	return func(o *sign.BundleOptions) {
		o.TimestampAuthorities = []*sign.TimestampAuthority{sign.NewTimestampAuthority(&sign.TimestampAuthorityOptions{URL: s.URL + "/api/v1/timestamp"})}
	}
}

func TestVerify_Keyless(t *testing.T) {
	t.Parallel()
	p, s := open(t, registry.WithReferrersSupport(true)), sigstoretest.New(t)
	exact := signerOf(t, s, keyless.Keyless{Identity: workflow, Issuer: github})
	like := signerOf(t, s, keyless.Keyless{IdentityRegexp: `https://github\.com/acme/.*@refs/heads/main`, Issuer: github})
	ref := p.push("shop/web")
	p.signKeyless(ref, s, workflow, github)
	require.NoError(t, p.verify(ref, exact))
	require.NoError(t, p.verify(ref, like))

	email := p.push("shop/web")
	p.signKeyless(email, s, "ann@example.com", "https://accounts.example.com")
	require.NoError(t, p.verify(email, exact, signerOf(t, s, keyless.Keyless{Identity: "ann@example.com", Issuer: "https://accounts.example.com"})), "one is enough")

	s.NoTime = true
	later := p.push("shop/web")
	p.signKeyless(later, s, workflow, github, stamped(s))
	require.NoError(t, p.verify(later, exact), "the time is that of the authority for timestamps")

	s = sigstoretest.New(t)
	s.WithSCT = true
	logged := p.push("shop/web")
	p.signKeyless(logged, s, workflow, github)
	require.NoError(t, p.verify(logged, signerOf(t, s, keyless.Keyless{Identity: workflow, Issuer: github})))
}

// TestVerify_KeylessRefused: what is not the signature of the identity, in time and in the log.
func TestVerify_KeylessRefused(t *testing.T) {
	t.Parallel()
	p, s, other := open(t, registry.WithReferrersSupport(true)), sigstoretest.New(t), sigstoretest.New(t)
	key := signers(t)["ECDSA P-256"]
	exact := signerOf(t, s, keyless.Keyless{Identity: workflow, Issuer: github})
	like := signerOf(t, s, keyless.Keyless{IdentityRegexp: `https://github\.com/acme/[^/]*/.*`, Issuer: github})
	another := p.push("shop/other")
	noLog := func(o *sign.BundleOptions) { o.TransparencyLogs = nil }
	for kind, c := range map[string]struct {
		attach func(ref name.Digest)
		by     imagesignature.Signer
		says   string
	}{
		"another identity": {func(ref name.Digest) { p.signKeyless(ref, s, strings.Replace(workflow, "shop", "toys", 1), github) }, exact, `got "https://github.com/acme/toys/`},
		"another issuer":   {func(ref name.Digest) { p.signKeyless(ref, s, workflow, "https://gitlab.example.com") }, exact, `got "https://gitlab.example.com"`},
		"an identity that contains the listed one": {
			func(ref name.Digest) { p.signKeyless(ref, s, workflow+".evil.example.com", github) }, exact, "expected SAN value",
		},
		"an identity that contains a match": {
			func(ref name.Digest) { p.signKeyless(ref, s, "https://evil.example.com/?"+workflow, github) }, like, "to match regex",
		},
		"another CA": {func(ref name.Digest) { p.signKeyless(ref, other, workflow, github) }, exact, "not enough verified log entries"},
		"another CA, logged in ours": {func(ref name.Digest) {
			p.signKeyless(ref, s, workflow, github, func(o *sign.BundleOptions) {
				o.CertificateProvider = sign.NewFulcio(&sign.FulcioOptions{BaseURL: other.URL})
			})
		}, exact, "failed to verify leaf certificate"},
		"no entry in the log": {func(ref name.Digest) { p.signKeyless(ref, s, workflow, github, noLog, stamped(s)) }, exact, "not enough verified log entries"},
		"no time": {func(ref name.Digest) {
			s.NoTime = true
			p.signKeyless(ref, s, workflow, github)
			s.NoTime = false
		}, exact, "failed to verify timestamps"},
		"signed after the certificate expired": {func(ref name.Digest) {
			s.Late = 30 * time.Minute
			p.signKeyless(ref, s, workflow, github)
			s.Late = 0
		}, exact, "outside certificate validity"},
		"of another image": {func(ref name.Digest) {
			p.bundle(ref, s.Sign(statement(another.DigestStr(), signPredicate), workflow, github))
		}, exact, "does not match"},
		"altered after it was signed": {func(ref name.Digest) {
			text := s.Sign(statement(another.DigestStr(), signPredicate), workflow, github)
			p.bundle(ref, withPayload(t, text, statement(ref.DigestStr(), signPredicate)))
		}, exact, "payload hash"},
		"by a key":                     {func(ref name.Digest) { p.refer(ref, statement(ref.DigestStr(), signPredicate), key) }, exact, "not enough verified log entries"},
		"keyless, for a key":           {func(ref name.Digest) { p.signKeyless(ref, s, workflow, github) }, key.public, "expected key signature, not certificate"},
		"a bundle that cannot be read": {func(ref name.Digest) { p.bundle(ref, []byte("{}")) }, exact, "the bundle cannot be read"},
	} {
		ref := p.push("shop/web")
		c.attach(ref)
		err := p.verify(ref, c.by)
		require.Error(t, err, kind)
		assert.True(t, problem.Is(err, problem.Code(imagesignature.NotListed)), "%s: %v", kind, err)
		assert.ErrorContains(t, err, "by a listed signer: "+c.by.String()+": ", kind)
		assert.ErrorContains(t, err, c.says, kind)
		assert.Less(t, len(err.Error()), 2500, kind)
	}
	ref := p.push("shop/web")
	p.bundle(ref, s.Sign(statement(ref.DigestStr(), "https://spdx.dev/Document"), workflow, github))
	err := p.verify(ref, exact)
	require.True(t, problem.Is(err, problem.Code(imagesignature.Unsigned)), "an attestation: %v", err)
	require.ErrorContains(t, err, "fix: sign it: cosign sign "+ref.Name())
	p.signKeyless(ref, s, workflow, github)
	s.WithSCT = true
	require.ErrorContains(t, p.verify(ref, signerOf(t, s, keyless.Keyless{Identity: workflow, Issuer: github})), "failed to verify signed certificate timestamp", "the CT log")
}

// simpleNotes signs a payload of simple signing keyless, and returns its annotations as cosign 2
// writes them.
func simpleNotes(t *testing.T, s *sigstoretest.Sigstore, payload []byte, options ...func(*sign.BundleOptions)) map[string]string {
	t.Helper()
	b := s.Bundle(&sign.PlainData{Data: payload}, workflow, github, options...)
	material := b.GetVerificationMaterial()
	notes := map[string]string{
		"dev.cosignproject.cosign/signature": base64.StdEncoding.EncodeToString(b.GetMessageSignature().GetSignature()),
		"dev.sigstore.cosign/certificate":    string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: material.GetCertificate().GetRawBytes()})),
	}
	for _, entry := range material.GetTlogEntries() {
		text, err := json.Marshal(map[string]any{
			"SignedEntryTimestamp": entry.GetInclusionPromise().GetSignedEntryTimestamp(),
			"Payload": map[string]any{
				"body": entry.GetCanonicalizedBody(), "integratedTime": entry.GetIntegratedTime(), "logIndex": entry.GetLogIndex(),
				"logID": hex.EncodeToString(entry.GetLogId().GetKeyId()),
			},
		})
		require.NoError(t, err)
		notes["dev.sigstore.cosign/bundle"] = string(text)
	}
	return notes
}

// TestVerify_KeylessSimple: the older form, with a tag and annotations.
func TestVerify_KeylessSimple(t *testing.T) {
	t.Parallel()
	p, s := open(t), sigstoretest.New(t)
	by := signerOf(t, s, keyless.Keyless{Identity: workflow, Issuer: github})
	another := p.push("shop/other")
	for kind, c := range map[string]struct {
		of    func(ref name.Digest) name.Digest
		alter func(notes map[string]string)
		says  string // empty if it passes
	}{
		"signed":           {},
		"of another image": {of: func(name.Digest) name.Digest { return another }, says: "of something else than this image"},
		"not logged":       {alter: func(n map[string]string) { delete(n, "dev.sigstore.cosign/bundle") }, says: "not enough verified log entries"},
		"logged otherwise": {alter: func(n map[string]string) {
			n["dev.sigstore.cosign/bundle"] = simpleNotes(t, s, []byte("another payload"))["dev.sigstore.cosign/bundle"]
		}, says: "transparency log signature does not match"},
		"an entry that cannot be read": {alter: func(n map[string]string) { n["dev.sigstore.cosign/bundle"] = "{}" }, says: "the entry of the transparency log cannot be read"},
		"a certificate that cannot be read": {
			alter: func(n map[string]string) { n["dev.sigstore.cosign/certificate"] = "x" }, says: "the certificate of the signature is not PEM",
		},
		"no certificate": {alter: func(n map[string]string) { delete(n, "dev.sigstore.cosign/certificate") }, says: "not enough verified log entries"},
	} {
		ref := p.push("shop/web")
		of := ref
		if c.of != nil {
			of = c.of(ref)
		}
		payload := simple(of, of.DigestStr())
		notes := simpleNotes(t, s, payload)
		if c.alter != nil {
			c.alter(notes)
		}
		p.annotate(ref, payload, notes)
		err := p.verify(ref, by)
		if c.says == "" {
			require.NoError(t, err, kind)
			continue
		}
		require.True(t, problem.Is(err, problem.Code(imagesignature.NotListed)), "%s: %v", kind, err)
		require.ErrorContains(t, err, c.says, kind)
	}
}

// withPayload returns a bundle with another payload.
func withPayload(t *testing.T, text, payload []byte) []byte {
	t.Helper()
	var b map[string]any
	require.NoError(t, json.Unmarshal(text, &b))
	b["dsseEnvelope"].(map[string]any)["payload"] = payload
	text, err := json.Marshal(b)
	require.NoError(t, err)
	return text
}

// TestVerify_RefusalBounded: a refusal with many signers stays short.
func TestVerify_RefusalBounded(t *testing.T) {
	t.Parallel()
	p, s := open(t, registry.WithReferrersSupport(true)), sigstoretest.New(t)
	ref := p.push("shop/web")
	p.signKeyless(ref, s, workflow, github)
	var by []imagesignature.Signer
	for range keyless.MaxKeyless {
		by = append(by, signerOf(t, s, keyless.Keyless{Identity: strings.Repeat("x", 500), Issuer: github}))
	}
	err := p.verify(ref, by...)
	require.ErrorContains(t, err, "others")
	assert.Less(t, len(err.Error()), 3000)
}

func TestKeyless_Mistakes(t *testing.T) {
	t.Parallel()
	for says, k := range map[string]keyless.Keyless{
		"identity or identityRegexp: set one":              {Issuer: github},
		"identity or identityRegexp: set one of":           {Identity: "a", IdentityRegexp: "a", Issuer: github},
		"issuer has to be the https URL":                   {Identity: "a"},
		"issuer has to be the https URL of":                {Identity: "a", Issuer: "http://accounts.example.com"},
		"identityRegexp is not a regular expression":       {IdentityRegexp: "(", Issuer: github},
		"identityRegexp is not a regular expression (RE2)": {IdentityRegexp: "a)|(?:b", Issuer: github},
		"identity has more than 512 bytes":                 {Identity: strings.Repeat("x", 600), Issuer: github},
		"identityRegexp has more than 512 bytes":           {IdentityRegexp: strings.Repeat("x", 600), Issuer: github},
	} {
		_, err := k.Signer(keyless.Root{})
		require.ErrorContains(t, err, says)
	}
	s := sigstoretest.New(t)
	var trusted map[string]any
	require.NoError(t, json.Unmarshal([]byte(s.TrustedRoot()), &trusted))
	without := func(field string) string {
		kept := trusted[field]
		delete(trusted, field)
		text, err := json.Marshal(trusted)
		require.NoError(t, err)
		trusted[field] = kept
		return string(text)
	}
	for says, text := range map[string]string{
		"is not a trusted_root.json":    "{}",
		"has no certificateAuthorities": without("certificateAuthorities"),
		"has no tlogs":                  without("tlogs"),
		"has more than 32 KiB":          strings.Repeat(" ", 33<<10),
	} {
		_, err := keyless.ReadRoot(text)
		require.ErrorContains(t, err, says)
	}
}
