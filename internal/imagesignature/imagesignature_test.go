package imagesignature_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/egress"
	"github.com/pipeops/pipeops-vm-agent/internal/imagesignature"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// place is a registry over HTTPS, with a Verifier.
type place struct {
	t        *testing.T
	server   *httptest.Server
	requests atomic.Int64
	password string              // asked of everyone, if set
	broken   atomic.Bool         // answers 500
	garbage  func(string) []byte // what a path answers instead; nil for nothing else
	config   imagesignature.Config
	verifier *imagesignature.Verifier
}

func open(t *testing.T, options ...registry.Option) *place {
	t.Helper()
	p := &place{t: t}
	images := registry.New(append([]registry.Option{registry.Logger(log.New(io.Discard, "", 0))}, options...)...)
	p.server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.requests.Add(1)
		_, password, _ := r.BasicAuth()
		switch {
		case p.broken.Load():
			w.WriteHeader(http.StatusInternalServerError)
		case p.password != "" && password != p.password:
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			w.WriteHeader(http.StatusUnauthorized)
		case p.garbage != nil && p.garbage(r.URL.Path) != nil:
			_, _ = w.Write(p.garbage(r.URL.Path))
		default:
			images.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(p.server.Close)
	p.config = imagesignature.Config{Transport: p.server.Client().Transport, Secret: func(context.Context, string, string) ([]byte, error) { return nil, nil }}
	p.verifier = imagesignature.New(p.config)
	return p
}

func (p *place) host() string { return strings.TrimPrefix(p.server.URL, "https://") }

func (p *place) options() []remote.Option {
	return []remote.Option{remote.WithTransport(p.server.Client().Transport), remote.WithContext(p.t.Context())}
}

// push pushes an image, and returns it by its digest.
func (p *place) push(repository string) name.Digest {
	p.t.Helper()
	image, err := random.Image(100, 1)
	require.NoError(p.t, err)
	return p.put(repository, image)
}

func (p *place) put(repository string, image v1.Image) name.Digest {
	p.t.Helper()
	tag, err := name.NewTag(p.host() + "/" + repository + ":1")
	require.NoError(p.t, err)
	require.NoError(p.t, remote.Write(tag, image, p.options()...))
	digest, err := image.Digest()
	require.NoError(p.t, err)
	return tag.Digest(digest.String())
}

// signer is a private key, and how cosign signs with it.
type signer struct {
	public imagesignature.Signer
	sign   func(message []byte) []byte
}

func newSigner(t *testing.T, key crypto.Signer, sign func(message []byte) ([]byte, error)) signer {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	require.NoError(t, err)
	public, err := imagesignature.ReadKey(string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})))
	require.NoError(t, err)
	return signer{public, func(message []byte) []byte {
		sig, err := sign(message)
		require.NoError(t, err)
		return sig
	}}
}

func ecdsaSigner(t *testing.T, curve elliptic.Curve, hash crypto.Hash) signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	require.NoError(t, err)
	return newSigner(t, key, func(message []byte) ([]byte, error) {
		h := hash.New()
		h.Write(message)
		return key.Sign(rand.Reader, h.Sum(nil), hash)
	})
}

func signers(t *testing.T) map[string]signer {
	t.Helper()
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	return map[string]signer{
		"ECDSA P-256":         ecdsaSigner(t, elliptic.P256(), crypto.SHA256),
		"ECDSA P-384":         ecdsaSigner(t, elliptic.P384(), crypto.SHA384),
		"ECDSA P-521, SHA256": ecdsaSigner(t, elliptic.P521(), crypto.SHA256),
		"Ed25519":             newSigner(t, ed, func(m []byte) ([]byte, error) { return ed.Sign(nil, m, crypto.Hash(0)) }),
		"Ed25519ph": newSigner(t, ed, func(m []byte) ([]byte, error) {
			sum := sha512.Sum512(m)
			return ed.Sign(nil, sum[:], &ed25519.Options{Hash: crypto.SHA512})
		}),
		"RSA": newSigner(t, rsaKey, func(m []byte) ([]byte, error) {
			sum := sha256.Sum256(m)
			return rsaKey.Sign(rand.Reader, sum[:], crypto.SHA256)
		}),
	}
}

// simple is a payload of simple signing, as cosign writes it.
func simple(ref name.Digest, digest string) []byte {
	return fmt.Appendf(nil, `{"critical":{"identity":{"docker-reference":%q},"image":{"docker-manifest-digest":%q},"type":"cosign container image signature"},"optional":null}`,
		ref.Context().Name(), digest)
}

// attach puts a payload with signatures beside an image, as cosign 2 does.
func (p *place) attach(ref name.Digest, payload []byte, signatures ...[]byte) {
	p.t.Helper()
	var all []map[string]string
	for _, sig := range signatures {
		all = append(all, map[string]string{"dev.cosignproject.cosign/signature": base64.StdEncoding.EncodeToString(sig)})
	}
	p.annotate(ref, payload, all...)
}

// annotate puts a payload beside an image, once with each of the annotations.
func (p *place) annotate(ref name.Digest, payload []byte, all ...map[string]string) {
	p.t.Helper()
	image := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	for _, notes := range all {
		var err error
		image, err = mutate.Append(image, mutate.Addendum{
			Layer: static.NewLayer(payload, "application/vnd.dev.cosign.simplesigning.v1+json"), Annotations: notes,
		})
		require.NoError(p.t, err)
	}
	tag := ref.Context().Tag(strings.Replace(ref.DigestStr(), ":", "-", 1) + ".sig")
	require.NoError(p.t, remote.Write(tag, image, p.options()...))
}

// statement is what a bundle of Sigstore holds for a signature, as cosign 3 writes it.
func statement(digest, predicate string) []byte {
	return fmt.Appendf(nil, `{"_type":"https://in-toto.io/Statement/v1","subject":[{"digest":{"sha256":%q},"annotations":{}}],"predicateType":%q,"predicate":{}}`,
		strings.TrimPrefix(digest, "sha256:"), predicate)
}

const signPredicate = "https://sigstore.dev/cosign/sign/v1"

// refer puts a bundle with a key's signature beside an image.
func (p *place) refer(ref name.Digest, payload []byte, by signer) {
	p.t.Helper()
	const kind = "application/vnd.in-toto+json"
	sig := by.sign(fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(kind), kind, len(payload), payload))
	text, err := json.Marshal(map[string]any{
		"mediaType":            "application/vnd.dev.sigstore.bundle.v0.3+json",
		"verificationMaterial": map[string]any{"publicKey": map[string]any{"hint": "x"}},
		"dsseEnvelope":         map[string]any{"payload": payload, "payloadType": kind, "signatures": []any{map[string]any{"sig": sig}}},
	})
	require.NoError(p.t, err)
	p.bundle(ref, text)
}

// bundle puts a bundle beside an image that refers to it.
func (p *place) bundle(ref name.Digest, text []byte) {
	p.t.Helper()
	const media = "application/vnd.dev.sigstore.bundle.v0.3+json"
	image, err := mutate.AppendLayers(mutate.MediaType(empty.Image, types.OCIManifestSchema1), static.NewLayer(text, media))
	require.NoError(p.t, err)
	described, err := remote.Head(ref, p.options()...)
	require.NoError(p.t, err)
	image = mutate.Subject(mutate.ConfigMediaType(image, media), *described).(v1.Image)
	digest, err := image.Digest()
	require.NoError(p.t, err)
	require.NoError(p.t, remote.Write(ref.Context().Digest(digest.String()), image, p.options()...))
}

func (p *place) verify(ref name.Digest, by ...imagesignature.Signer) error {
	return p.verifier.Verify(imagesignature.Request{Image: ref.Name(), Signers: by, Runner: "ci", Namespace: "shop", PullSecrets: []string{"pull"}})
}

func TestVerify_SignedByKey(t *testing.T) {
	t.Parallel()
	p := open(t, registry.WithReferrersSupport(true))
	all := signers(t)
	other := all["ECDSA P-384"].public
	for kind, s := range all {
		ref := p.push("shop/simple")
		payload := simple(ref, ref.DigestStr())
		p.attach(ref, payload, []byte("no signature"), s.sign(payload))
		require.NoError(t, p.verify(ref, ecdsaSigner(t, elliptic.P256(), crypto.SHA256).public, s.public), kind)

		ref = p.push("shop/bundle")
		p.refer(ref, statement(ref.DigestStr(), signPredicate), s)
		require.NoError(t, p.verify(ref, s.public), kind)
		if s.public.ID() != other.ID() {
			err := p.verify(ref, other)
			require.True(t, problem.Is(err, problem.Code(imagesignature.NotListed)), "%s: %v", kind, err)
			require.ErrorContains(t, err, ref.Name())
			require.ErrorContains(t, err, other.String())
		}
	}
}

// TestVerify_ReferrersTag: a registry without the referrers API has a tag for them.
func TestVerify_ReferrersTag(t *testing.T) {
	t.Parallel()
	p := open(t)
	s := ecdsaSigner(t, elliptic.P256(), crypto.SHA256)
	ref := p.push("shop/web")
	p.refer(ref, statement(ref.DigestStr(), signPredicate), s)
	require.NoError(t, p.verify(ref, s.public))
}

// TestVerify_Index: the digest that is named counts, also of an index for several architectures.
func TestVerify_Index(t *testing.T) {
	t.Parallel()
	p := open(t)
	s := ecdsaSigner(t, elliptic.P256(), crypto.SHA256)
	index, err := random.Index(100, 1, 2)
	require.NoError(t, err)
	tag, err := name.NewTag(p.host() + "/shop/web:multi")
	require.NoError(t, err)
	require.NoError(t, remote.WriteIndex(tag, index, p.options()...))
	digest, err := index.Digest()
	require.NoError(t, err)
	ref := tag.Digest(digest.String())
	payload := simple(ref, ref.DigestStr())
	p.attach(ref, payload, s.sign(payload))
	require.NoError(t, p.verify(ref, s.public))
	list, err := index.IndexManifest()
	require.NoError(t, err)
	err = p.verify(tag.Digest(list.Manifests[0].Digest.String()), s.public)
	require.True(t, problem.Is(err, problem.Code(imagesignature.Unsigned)), "the image of one architecture is not signed: %v", err)
}

func TestVerify_Refused(t *testing.T) {
	t.Parallel()
	p := open(t, registry.WithReferrersSupport(true))
	s, other := ecdsaSigner(t, elliptic.P256(), crypto.SHA256), ecdsaSigner(t, elliptic.P256(), crypto.SHA256)
	unsigned := p.push("shop/unsigned")
	for kind, c := range map[string]struct {
		attach func(ref name.Digest)
		reason imagesignature.Reason
	}{
		"nothing":       {func(name.Digest) {}, imagesignature.Unsigned},
		"another key":   {func(ref name.Digest) { m := simple(ref, ref.DigestStr()); p.attach(ref, m, other.sign(m)) }, imagesignature.NotListed},
		"another image": {func(ref name.Digest) { m := simple(ref, unsigned.DigestStr()); p.attach(ref, m, s.sign(m)) }, imagesignature.NotListed},
		"another payload": {func(ref name.Digest) {
			p.attach(ref, simple(ref, ref.DigestStr()), s.sign(simple(ref, unsigned.DigestStr())))
		}, imagesignature.NotListed},
		"another type": {func(ref name.Digest) {
			m := bytes.Replace(simple(ref, ref.DigestStr()), []byte("cosign container"), []byte("other container"), 1)
			p.attach(ref, m, s.sign(m))
		}, imagesignature.NotListed},
		"no JSON":                 {func(ref name.Digest) { p.attach(ref, []byte("{"), s.sign([]byte("{"))) }, imagesignature.NotListed},
		"bundle of another key":   {func(ref name.Digest) { p.refer(ref, statement(ref.DigestStr(), signPredicate), other) }, imagesignature.NotListed},
		"bundle of another image": {func(ref name.Digest) { p.refer(ref, statement(unsigned.DigestStr(), signPredicate), s) }, imagesignature.NotListed},
		"attestation":             {func(ref name.Digest) { p.refer(ref, statement(ref.DigestStr(), "https://spdx.dev/Document"), s) }, imagesignature.Unsigned},
	} {
		ref := p.push("shop/web")
		c.attach(ref)
		err := p.verify(ref, s.public)
		require.Error(t, err, kind)
		assert.True(t, problem.Is(err, problem.Code(c.reason)), "%s: %v", kind, err)
		assert.ErrorContains(t, err, ref.DigestStr(), kind)
	}
	require.ErrorContains(t, p.verifier.Verify(imagesignature.Request{Image: p.host() + "/shop/web:1"}), "has no digest")
}

func TestVerify_Remembers(t *testing.T) {
	t.Parallel()
	p := open(t)
	now := time.Now()
	p.config.Now = func() time.Time { return now }
	p.verifier = imagesignature.New(p.config)
	s := ecdsaSigner(t, elliptic.P256(), crypto.SHA256)
	ref := p.push("shop/web")
	require.Error(t, p.verify(ref, s.public))
	payload := simple(ref, ref.DigestStr())
	p.attach(ref, payload, s.sign(payload))
	asked := p.requests.Load()
	require.Error(t, p.verify(ref, s.public), "for a moment")
	assert.Equal(t, asked, p.requests.Load())
	now = now.Add(11 * time.Second)
	require.NoError(t, p.verify(ref, s.public))
	asked = p.requests.Load()
	now = now.Add(time.Hour)
	require.NoError(t, p.verify(ref, s.public))
	assert.Equal(t, asked, p.requests.Load(), "a signature stays")
	require.Error(t, p.verify(ref, ecdsaSigner(t, elliptic.P256(), crypto.SHA256).public), "by another key it is another question")
}

func TestVerify_Unreachable(t *testing.T) {
	t.Parallel()
	p := open(t)
	s := ecdsaSigner(t, elliptic.P256(), crypto.SHA256)
	ref := p.push("shop/web")
	p.broken.Store(true)
	err := p.verify(ref, s.public)
	require.True(t, problem.Is(err, problem.Code(imagesignature.Unavailable)), "%v", err)
	require.ErrorContains(t, err, "the registry answered 500")
	known := &problem.Error{}
	require.ErrorAs(t, err, &known)
	assert.True(t, known.Passing())

	for range 20 {
		require.Error(t, p.verify(p.unpushed("shop/web"), s.public))
	}
	asked := p.requests.Load()
	require.ErrorContains(t, p.verify(p.unpushed("shop/web"), s.public), "the registries of many images could not be reached")
	assert.Equal(t, asked, p.requests.Load(), "the Runner waits")
	assert.ErrorContains(t, p.verifier.Verify(imagesignature.Request{Image: ref.Name(), Signers: []imagesignature.Signer{s.public}, Runner: "other"}), "answered 500", "another does not")

	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	v := imagesignature.New(imagesignature.Config{Guard: egress.Guard{Allowed: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Hosts: egress.EveryHost}})
	image := strings.TrimPrefix(plain.URL, "http://") + "/web@" + ref.DigestStr()
	require.True(t, problem.Is(v.Verify(imagesignature.Request{Image: image, Runner: "ci"}), problem.Code(imagesignature.Unavailable)), "no HTTPS")
	v = imagesignature.New(imagesignature.Config{Guard: egress.Guard{Hosts: egress.EveryHost}})
	err = v.Verify(imagesignature.Request{Image: image, Runner: "ci"})
	require.True(t, problem.Is(err, "address_forbidden"), "%v", err)
	hosts := func() egress.Hosts { return egress.Hosts{Patterns: []string{"git.example.com"}, Source: "a test"} }
	v = imagesignature.New(imagesignature.Config{Guard: egress.Guard{Hosts: hosts}})
	err = v.Verify(imagesignature.Request{Image: image, Runner: "ci"})
	require.True(t, problem.Is(err, "host_forbidden"), "%v", err)
}

// unpushed is an image that the registry does not have.
func (p *place) unpushed(repository string) name.Digest {
	p.t.Helper()
	var raw [32]byte
	_, err := rand.Read(raw[:])
	require.NoError(p.t, err)
	ref, err := name.NewDigest(fmt.Sprintf("%s/%s@sha256:%x", p.host(), repository, raw))
	require.NoError(p.t, err)
	return ref
}

func TestVerify_PullSecret(t *testing.T) {
	t.Parallel()
	p := open(t)
	s := ecdsaSigner(t, elliptic.P256(), crypto.SHA256)
	ref := p.push("shop/web")
	payload := simple(ref, ref.DigestStr())
	p.attach(ref, payload, s.sign(payload))
	p.password = "correct horse"
	err := p.verify(ref, s.public)
	require.ErrorContains(t, err, "the registry answered 401")
	require.ErrorContains(t, err, "imagePullSecrets")
	login := base64.StdEncoding.EncodeToString([]byte("reader:correct horse"))
	for entry, works := range map[string]bool{
		p.host(): true, "https://" + p.host() + "/v1/": true, p.host() + "/shop": true, p.host() + "/shop/web": true,
		p.host() + "/shop/we": false, "registry.example.com": false,
	} {
		p.config.Secret = func(_ context.Context, namespace, secret string) ([]byte, error) {
			assert.Equal(t, "shop/pull", namespace+"/"+secret)
			return fmt.Appendf(nil, `{"auths":{%q:{"auth":%q},"*.example.org":{"auth":"bm8="}}}`, entry, login), nil
		}
		p.verifier = imagesignature.New(p.config)
		err := p.verify(ref, s.public)
		assert.Equal(t, works, err == nil, "%s: %v", entry, err)
		if err != nil {
			assert.NotContains(t, err.Error(), "correct horse")
		}
	}
}

func TestVerify_HostileRegistry(t *testing.T) {
	t.Parallel()
	s := ecdsaSigner(t, elliptic.P256(), crypto.SHA256)
	for kind, answer := range map[string][]byte{
		"endless": bytes.Repeat([]byte(" "), 3<<20), "no JSON": []byte("<html>"),
		"large": []byte(`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"digest":"sha256:` + strings.Repeat("0", 64) +
			`"},"layers":[{"mediaType":"application/vnd.dev.cosign.simplesigning.v1+json","size":99999999,"digest":"sha256:` + strings.Repeat("0", 64) +
			`","annotations":{"dev.cosignproject.cosign/signature":"AAAA"}}]}`),
	} {
		p := open(t)
		ref := p.push("shop/web")
		p.garbage = func(path string) []byte {
			if strings.HasSuffix(path, ".sig") {
				return answer
			}
			return nil
		}
		err := p.verify(ref, s.public)
		require.Error(t, err, kind)
		assert.True(t, problem.Is(err, problem.Code(imagesignature.Unavailable)), "%s: %v", kind, err)
		assert.Less(t, len(err.Error()), 1000, kind)
	}
}

func TestReadKey(t *testing.T) {
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	require.NoError(t, err)
	der, err := x509.MarshalPKIXPublicKey(small.Public())
	require.NoError(t, err)
	for text, says := range map[string]string{
		"": "is not one public key", "ssh-ed25519 AAAA": "is not one public key", "-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----": "is a private key",
		string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: []byte("x")})): "is not a public key that can be read",
		string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})):         "RSA key of 1024 bits",
		strings.Repeat("x", 20<<10): "has more than 16 KiB",
	} {
		_, err := imagesignature.ReadKey(text)
		require.ErrorContains(t, err, says)
	}
}
