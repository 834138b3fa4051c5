package imagesignature_test

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	tufsigner "github.com/sigstore/sigstore/pkg/signature"
	"github.com/stretchr/testify/require"
	"github.com/theupdateframework/go-tuf/v2/metadata"

	"github.com/pipeops/pipeops-vm-agent/internal/egress"
	"github.com/pipeops/pipeops-vm-agent/internal/imagesignature"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	keyless "github.com/pipeops/pipeops-vm-agent/internal/sigstore"
	"github.com/pipeops/pipeops-vm-agent/test/sigstoretest"
)

// mirror is a TUF repository over HTTPS, as that of the public Sigstore.
type mirror struct {
	server *httptest.Server
	anchor []byte // root.json
	asked  atomic.Int64
	broken atomic.Bool
}

func newMirror(t *testing.T, trustedRoot string) *mirror {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	public, err := metadata.KeyFromPublicKey(key.Public())
	require.NoError(t, err)
	by, err := tufsigner.LoadSigner(key, crypto.Hash(0))
	require.NoError(t, err)
	expires := time.Now().Add(time.Hour)
	first := metadata.Root(expires)
	for _, role := range metadata.TOP_LEVEL_ROLE_NAMES {
		require.NoError(t, first.Signed.AddKey(public, role))
	}
	targets := metadata.Targets(expires)
	target, err := metadata.TargetFile().FromBytes("trusted_root.json", []byte(trustedRoot), "sha256")
	require.NoError(t, err)
	targets.Signed.Targets["trusted_root.json"] = target
	files := map[string][]byte{"/targets/" + target.Hashes["sha256"].String() + ".trusted_root.json": []byte(trustedRoot)}
	add := func(path string, sign func(tufsigner.Signer) (*metadata.Signature, error), text func(bool) ([]byte, error)) {
		_, err := sign(by)
		require.NoError(t, err)
		files[path], err = text(false)
		require.NoError(t, err)
	}
	snapshot, stamp := metadata.Snapshot(expires), metadata.Timestamp(expires)
	add("/1.root.json", first.Sign, first.ToBytes)
	add("/1.targets.json", targets.Sign, targets.ToBytes)
	add("/1.snapshot.json", snapshot.Sign, snapshot.ToBytes)
	add("/timestamp.json", stamp.Sign, stamp.ToBytes)
	m := &mirror{anchor: files["/1.root.json"]}
	m.server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.asked.Add(1)
		switch text, ok := files[r.URL.Path]; {
		case m.broken.Load():
			w.WriteHeader(http.StatusBadGateway)
		case !ok:
			w.WriteHeader(http.StatusNotFound)
		default:
			_, _ = w.Write(text)
		}
	}))
	t.Cleanup(m.server.Close)
	return m
}

// TestVerify_PublicRoot: without trustedRoot, the root of trust is fetched by TUF, once a day.
func TestVerify_PublicRoot(t *testing.T) {
	t.Parallel()
	p, s := open(t, registry.WithReferrersSupport(true)), sigstoretest.New(t)
	m, now := newMirror(t, s.TrustedRoot()), time.Now()
	p.config.Now = func() time.Time { return now }
	p.config.Mirror = keyless.Mirror{URL: m.server.URL, Root: m.anchor}
	p.verifier = imagesignature.New(p.config)
	by := ofPublic(t, workflow)
	verify := func() error {
		ref := p.push("shop/web")
		p.signKeyless(ref, s, workflow, github)
		return p.verify(ref, by)
	}
	require.True(t, problem.Is(p.verify(p.push("shop/web"), by), problem.Code(imagesignature.Unsigned)))
	require.Zero(t, m.asked.Load(), "nothing to verify")
	require.NoError(t, verify())
	asked := m.asked.Load()
	require.NotZero(t, asked)
	require.NoError(t, verify())
	require.Equal(t, asked, m.asked.Load(), "it is kept")
	now = now.Add(25 * time.Hour)
	require.NoError(t, verify())
	require.Greater(t, m.asked.Load(), asked, "for a day")

	m.broken.Store(true)
	now = now.Add(6 * 24 * time.Hour)
	require.NoError(t, verify(), "the mirror is away")
	now = now.Add(2 * 24 * time.Hour)
	err := verify()
	require.True(t, problem.Is(err, problem.Code(imagesignature.Unavailable)), "for too long: %v", err)
	require.ErrorContains(t, err, "Sigstore's root of trust cannot be fetched from "+m.server.URL)
	require.ErrorContains(t, err, "set trustedRoot in the policy")
	asked = m.asked.Load()
	require.Error(t, verify())
	require.Equal(t, asked, m.asked.Load(), "it was away a moment ago")
	m.broken.Store(false)
	now = now.Add(time.Minute)
	require.NoError(t, verify())
	m.broken.Store(true)
	now = now.Add(8 * 24 * time.Hour)
	other := ofPublic(t, "ann@example.com")
	ref := p.push("shop/web")
	p.signKeyless(ref, s, workflow, github)
	require.NoError(t, p.verify(ref, other, signerOf(t, s, keyless.Keyless{Identity: workflow, Issuer: github})), "a signer with a root of its own needs no mirror")
}

// ofPublic is a keyless signer of the public Sigstore.
func ofPublic(t *testing.T, identity string) imagesignature.Signer {
	t.Helper()
	by, err := keyless.Keyless{Identity: identity, Issuer: github}.Signer(keyless.Root{})
	require.NoError(t, err)
	return imagesignature.Keyless(by)
}

func TestVerify_PublicRootRefused(t *testing.T) {
	t.Parallel()
	p, s := open(t, registry.WithReferrersSupport(true)), sigstoretest.New(t)
	m, forged := newMirror(t, s.TrustedRoot()), newMirror(t, s.TrustedRoot())
	by := ofPublic(t, workflow)
	ref := p.push("shop/web")
	p.signKeyless(ref, s, workflow, github)
	p.config.Mirror = keyless.Mirror{URL: forged.server.URL, Root: m.anchor}
	p.verifier = imagesignature.New(p.config)
	err := p.verify(ref, by)
	require.True(t, problem.Is(err, problem.Code(imagesignature.Unavailable)), "keys that the first root.json does not have: %v", err)
	require.NotZero(t, forged.asked.Load())

	p.config.Mirror.URL = m.server.URL
	p.config.Transport = refusing{p.config.Transport, strings.TrimPrefix(m.server.URL, "https://")}
	p.verifier = imagesignature.New(p.config)
	err = p.verify(ref, by)
	require.True(t, problem.Is(err, "host_forbidden"), "fetchHosts bounds it: %v", err)
}

// refusing is a guard that refuses one host.
type refusing struct {
	next http.RoundTripper
	host string
}

func (r refusing) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Host == r.host {
		return nil, &egress.RefusedError{Host: r.host, Source: "a test"}
	}
	return r.next.RoundTrip(req)
}
