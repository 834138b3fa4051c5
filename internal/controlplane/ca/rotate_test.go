package ca

import (
	"crypto/elliptic"
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/trustanchor"
)

// rotating is a CA whose clock and process can be changed.
type rotating struct {
	*CA
	t    *testing.T
	file string
	now  time.Time
}

func newRotating(t *testing.T) *rotating {
	t.Helper()
	r := &rotating{t: t, file: filepath.Join(t.TempDir(), "ca.pem"), now: noon}
	r.restart()
	return r
}

// restart opens the file again, as another process would.
func (r *rotating) restart() {
	r.t.Helper()
	r.reopen(domains)
}

func (r *rotating) reopen(d Domains) {
	r.t.Helper()
	var err error
	r.CA, err = Open(r.file, d, noLog, func() time.Time { return r.now })
	require.NoError(r.t, err)
}

// take takes steps, in a process each.
func (r *rotating) take(steps ...Step) {
	r.t.Helper()
	for _, step := range steps {
		changed, err := r.Take(step)
		require.NoError(r.t, err)
		assert.True(r.t, changed, step)
		r.restart()
	}
}

func (r *rotating) rotate() { r.take(Start, Sign, Finish) }

// keys counts the private keys in the file.
func (r *rotating) keys() int {
	r.t.Helper()
	text, err := os.ReadFile(r.file)
	require.NoError(r.t, err)
	return strings.Count(string(text), "BEGIN PRIVATE KEY")
}

func (r *rotating) agent() *x509.Certificate {
	r.t.Helper()
	return r.certificate(time.Hour)
}

func (r *rotating) certificate(ttl time.Duration) *x509.Certificate {
	r.t.Helper()
	req, err := ParseRequest(request(r.t, ecKey(r.t, elliptic.P256())))
	require.NoError(r.t, err)
	issued, err := r.Agent(req, "a.agents", &url.URL{Scheme: "spiffe", Host: "trust", Path: "/agent/a"}, ttl, "test")
	require.NoError(r.t, err)
	cert, err := ParseCertificate(issued.Certificate)
	require.NoError(r.t, err)
	return cert
}

// believed verifies the control plane's certificate as one does who knows only old.
func (r *rotating) believed(old ...*x509.Certificate) error {
	r.t.Helper()
	own := NewServerCertificate(r.CA, []string{"localhost"})
	served, err := own.Get(nil)
	require.NoError(r.t, err)
	short, err := own.GetShort(nil)
	require.NoError(r.t, err)
	whole := r.verified(served, old...)
	assert.Equal(r.t, whole == nil, r.verified(short, old...) == nil, "who holds a CA needs no other that signs itself")
	return whole
}

func (r *rotating) verified(served *tls.Certificate, old ...*x509.Certificate) error {
	r.t.Helper()
	opts := x509.VerifyOptions{DNSName: "localhost", CurrentTime: r.now, Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool()}
	for _, c := range old {
		opts.Roots.AddCert(trustanchor.Of(c))
	}
	for _, der := range served.Certificate[1:] {
		c, err := x509.ParseCertificate(der)
		require.NoError(r.t, err)
		opts.Intermediates.AddCert(c)
	}
	_, err := served.Leaf.Verify(opts)
	return err
}

func TestRotation_Steps(t *testing.T) {
	r := newRotating(t)
	first, early := r.Certificate(), r.agent()
	settled := string(r.Bundle())

	r.take(Start)
	second := r.Other()
	assert.Equal(t, Introduced, r.Stage())
	assert.Equal(t, first, r.Certificate(), "the old one signs")
	assert.Equal(t, first, r.Anchor())
	assert.Len(t, trustanchor.Parse(r.Bundle()), 2)
	assert.True(t, r.Current(r.agent()))
	introduced := string(r.Bundle())

	r.take(Sign)
	late := r.agent()
	assert.Equal(t, second, r.Certificate())
	assert.Equal(t, first, r.Anchor(), "what is handed out now outlives an abort")
	assert.Equal(t, introduced, string(r.Bundle()), "nobody has to be told again")
	assert.True(t, r.Current(late))
	assert.False(t, r.Current(early))
	assert.True(t, r.Trusted(early))
	require.NoError(t, r.Verify(early, noon))
	require.NoError(t, r.Verify(late, noon))
	assert.Equal(t, 12, r.keys(), "of two roots, and five intermediates of each")

	r.take(Finish)
	assert.Equal(t, Settled, r.Stage())
	assert.Equal(t, second, r.Anchor())
	assert.Equal(t, 6, r.keys(), "the old keys are gone")
	assert.Len(t, trustanchor.Parse(r.Bundle()), 1)
	assert.NotEqual(t, settled, string(r.Bundle()))
	require.NoError(t, r.Verify(early, noon), "known still, for those who come back")
	assert.False(t, r.Trusted(early), "but not trusted")
	assert.Equal(t, []*x509.Certificate{first}, r.FormerCAs())
	info, err := os.Stat(r.file)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

func TestRotation_RepeatedSteps(t *testing.T) {
	r := newRotating(t)
	for _, early := range []Step{Sign, Finish} {
		_, err := r.Take(early)
		require.ErrorContains(t, err, "rotate start")
	}
	for _, step := range []Step{Start, Sign, Finish} {
		if step == Sign {
			_, err := r.Take(Finish)
			require.ErrorContains(t, err, "rotate sign")
		}
		would, err := r.Check(step)
		require.NoError(t, err)
		assert.True(t, would)
		r.take(step)
		stage, bundle := r.Stage(), string(r.Bundle())
		changed, err := r.Take(step)
		require.NoError(t, err)
		if step == Finish { // there is nothing that could be told apart from a new rotation but start
			assert.Equal(t, bundle, string(r.Bundle()))
		}
		assert.False(t, changed)
		assert.Equal(t, stage, r.Stage())
	}
}

func TestRotation_Abort(t *testing.T) {
	for name, steps := range map[string][]Step{
		"before it signed": {Start, Abort}, "after": {Start, Sign, Abort, Abort},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRotating(t)
			first, bundle := r.Certificate(), string(r.Bundle())
			r.take(steps[:len(steps)-1]...)
			assert.Equal(t, Introduced, r.Stage())
			assert.Equal(t, first, r.Certificate())
			r.take(steps[len(steps)-1])
			assert.Equal(t, Settled, r.Stage())
			assert.Equal(t, bundle, string(r.Bundle()))
			assert.Equal(t, 6, r.keys(), "the new keys are gone")
			require.NoError(t, r.believed(first))
			changed, err := r.Take(Abort)
			require.NoError(t, err)
			assert.False(t, changed)
			r.rotate()
			require.NoError(t, r.believed(first), "and another can follow")
		})
	}
}

// TestRotation_OldCAsVerifyNew covers agents that were away for several rotations, and longer than
// a CA lasts.
func TestRotation_OldCAsVerifyNew(t *testing.T) {
	r := newRotating(t)
	old := []*x509.Certificate{r.Certificate()}
	recovered := r.agent()
	for range 3 {
		r.now = r.now.Add(9 * 365 * 24 * time.Hour)
		r.restart()
		r.rotate()
		for i, c := range old {
			require.NoError(t, r.believed(c), "rotation %d back", len(old)-i)
		}
		old = append(old, r.Certificate())
	}
	assert.True(t, r.now.After(old[0].NotAfter.AddDate(10, 0, 0)))
	require.NoError(t, r.Verify(recovered, recovered.NotAfter.Add(-time.Second)), "its old certificate is known")
	require.Error(t, r.believed(open(t).Certificate()), "another control plane's")
}

func TestCA_Reload(t *testing.T) {
	r := newRotating(t)
	serving, err := Open(r.file, domains, noLog, at(noon))
	require.NoError(t, err)
	served := NewServerCertificate(serving, []string{"localhost"})
	before, err := served.Get(nil)
	require.NoError(t, err)
	changed, err := serving.Reload()
	require.NoError(t, err)
	assert.False(t, changed)

	r.take(Start, Sign)
	changed, err = serving.Reload()
	require.NoError(t, err)
	assert.True(t, changed)
	after, err := served.Get(nil)
	require.NoError(t, err)
	assert.True(t, serving.Current(after.Leaf))
	assert.False(t, serving.Current(before.Leaf))

	require.NoError(t, os.WriteFile(r.file, []byte("nonsense"), 0o600))
	_, err = serving.Reload()
	require.ErrorContains(t, err, "backup")
	assert.Equal(t, Signing, serving.Stage(), "as it was")
}

func TestCertificate_RenewKeepsIdentity(t *testing.T) {
	r := newRotating(t)
	old, err := r.issue("trust", 90*24*time.Hour)
	require.NoError(t, err)
	r.take(Start, Sign)
	again, err := r.Renew(old, 48*time.Hour, "test")
	require.NoError(t, err)
	cert, err := ParseCertificate(again.Certificate)
	require.NoError(t, err)
	assert.True(t, r.Current(cert))
	assert.Equal(t, old.SerialNumber.Text(16), again.Serial)
	assert.Equal(t, r.now.Add(48*time.Hour), cert.NotAfter)
	assert.Equal(t, r.now.Add(-time.Hour), cert.NotBefore)
	assert.Equal(t, again, r.Again(cert))
	assert.Equal(t, old.Subject.String(), cert.Subject.String())
	assert.Equal(t, old.URIs, cert.URIs)
	assert.Equal(t, old.ExtKeyUsage, cert.ExtKeyUsage)
	assert.Equal(t, old.PublicKey, cert.PublicKey)
	assert.False(t, cert.IsCA)
}
