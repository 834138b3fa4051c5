package login_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/login"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// plane is the part of a control plane that a login meets: a real CA, TLS and the
// call. What it answers otherwise a test may change.
type plane struct {
	*ca.CA
	url      string
	asked    atomic.Int64
	offset   atomic.Int64 // of the clock
	seen     atomic.Pointer[x509.Certificate]
	reissue  func(*http.Request) (login.Answer, error)
	original credentials.Credentials
}

func startPlane(t *testing.T) *plane {
	t.Helper()
	p := &plane{}
	authority, err := ca.Open(filepath.Join(t.TempDir(), "ca.pem"), ca.Domains{Trust: "trust", Agents: "agents"}, ca.LogFunc(func(ca.Record) error { return nil }), p.now)
	require.NoError(t, err)
	p.CA = authority
	p.reissue = func(r *http.Request) (login.Answer, error) {
		issued, err := p.Renew(r.TLS.PeerCertificates[0], time.Hour, "test")
		return login.Answer{Certificate: issued.Certificate, CA: string(p.Bundle())}, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /", func(_ http.ResponseWriter, r *http.Request) { p.seen.Store(r.TLS.PeerCertificates[0]) })
	mux.Handle("POST "+login.Path, login.Handler(func(r *http.Request) (login.Answer, error) {
		p.asked.Add(1)
		return p.reissue(r)
	}))
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(login.HeaderIssuer, p.SignerID(ca.RoleRunner))
		mux.ServeHTTP(w, r)
	}))
	server.TLS = &tls.Config{
		MinVersion: tls.VersionTLS13, GetCertificate: ca.NewServerCertificate(authority, []string{"localhost"}).Get,
		ClientAuth: tls.RequireAnyClientCert,
	}
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	p.url = strings.Replace(server.URL, "127.0.0.1", "localhost", 1) // httptest has its own certificate for addresses
	p.original = p.credentials(t)
	return p
}

func (p *plane) credentials(t *testing.T) credentials.Credentials {
	t.Helper()
	issued, key, err := p.Client("ci", credentials.RunnerURI("trust", "ci"), time.Hour, "test")
	require.NoError(t, err)
	return credentials.Credentials{
		Runner: "ci", ControlPlane: p.url + "/", Edge: "localhost:1", AgentsDomain: "agents", TrustDomain: "trust",
		CA: string(p.Bundle()), Certificate: issued.Certificate, Key: string(key),
	}
}

func (p *plane) now() time.Time { return time.Now().Add(time.Duration(p.offset.Load())) }

func (p *plane) forward(d time.Duration) { p.offset.Add(int64(d)) }

// log in with the plane's clock.
func (p *plane) login(t *testing.T, note func(error)) *login.Login {
	t.Helper()
	l, err := login.New(login.Config{Credentials: p.original, Note: note, Now: p.now})
	require.NoError(t, err)
	t.Cleanup(l.Close)
	return l
}

func (p *plane) rotate(t *testing.T) {
	t.Helper()
	for _, step := range []ca.Step{ca.Start, ca.Sign, ca.Finish} {
		_, err := p.Take(step)
		require.NoError(t, err)
	}
}

func call(t *testing.T, l *login.Login, p *plane) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.url, nil)
	require.NoError(t, err)
	resp, err := l.HTTPClient().Do(r)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
}

func current(t *testing.T, l *login.Login, p *plane) bool {
	t.Helper()
	cert, err := l.Certificate()
	require.NoError(t, err)
	return p.Current(cert.Leaf)
}

func TestLogin_FollowsCARotation(t *testing.T) {
	p := startPlane(t)
	file := filepath.Join(t.TempDir(), "ci.json")
	require.NoError(t, p.original.Write(file))
	link := filepath.Join(t.TempDir(), "link.json")
	require.NoError(t, os.Symlink(file, link))
	l, err := login.Open(link, func(err error) { t.Error(err) })
	require.NoError(t, err)
	defer l.Close()
	for range 3 {
		call(t, l, p)
		call(t, l, p)
		before := p.asked.Load()
		p.rotate(t)
		assert.False(t, current(t, l, p))
		call(t, l, p)
		assert.True(t, current(t, l, p), "by the time the answer is there")
		call(t, l, p)
		assert.Equal(t, before+1, p.asked.Load(), "it asks once")
	}
	kept, err := credentials.Load(file)
	require.NoError(t, err)
	assert.Equal(t, l.Credentials(), kept)
	assert.Equal(t, string(p.Bundle()), kept.CA)
	assert.Equal(t, p.original.Key, kept.Key)
	again, err := login.New(login.Config{Credentials: p.original})
	require.NoError(t, err)
	defer again.Close()
	call(t, again, p) // from a file of three CAs ago
	assert.True(t, current(t, again, p))
}

func TestLogin_ReportsFailedSave(t *testing.T) {
	p := startPlane(t)
	var noted atomic.Int64
	full := errors.New("no space left")
	l, err := login.New(login.Config{
		Credentials: p.original, Save: func(credentials.Credentials) error { return full },
		Note: func(err error) {
			assert.ErrorIs(t, err, full)
			noted.Add(1)
		},
	})
	require.NoError(t, err)
	defer l.Close()
	p.rotate(t)
	call(t, l, p)
	assert.EqualValues(t, 1, noted.Load())
	assert.True(t, current(t, l, p), "it is used all the same")
}

func TestLogin_RunsInBackground(t *testing.T) {
	p := startPlane(t)
	l, err := login.New(login.Config{Credentials: p.original})
	require.NoError(t, err)
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); l.Run(ctx, 10*time.Millisecond) }()
	await.Until(t, "the login has asked twice", func() bool { return p.asked.Load() > 1 })
	p.rotate(t)
	await.Until(t, "the login is current", func() bool { return current(t, l, p) })
	cancel()
	await.Closed(t, done, "the end of the login")
}

func TestLogin_IgnoresBadResponse(t *testing.T) {
	p := startPlane(t)
	other, _, err := p.Client("other", &url.URL{Scheme: "spiffe", Host: "trust", Path: "/runner/other"}, time.Hour, "test")
	require.NoError(t, err)
	for name, reissue := range map[string]func(*http.Request) (login.Answer, error){
		"another key": func(*http.Request) (login.Answer, error) {
			return login.Answer{Certificate: other.Certificate, CA: string(p.Bundle())}, nil
		},
		"no CA": func(*http.Request) (login.Answer, error) {
			return login.Answer{Certificate: p.original.Certificate}, nil
		},
		"too large": func(*http.Request) (login.Answer, error) {
			return login.Answer{Certificate: string(make([]byte, 300<<10))}, nil
		},
		"refused": func(*http.Request) (login.Answer, error) {
			return login.Answer{}, problem.Errorf(problem.Unauthorized, "make a new one", "it was revoked")
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := login.New(login.Config{Credentials: p.original})
			require.NoError(t, err)
			defer l.Close()
			p.reissue = reissue
			require.Error(t, l.Check(t.Context()))
			assert.Equal(t, p.original, l.Credentials())
		})
	}
}

// After a rotation of the control plane's CA, a policy that pins the key or trusts the
// customer's CA must not refuse the Runner.
func TestLogin_KeepsKeyAndEndorsement(t *testing.T) {
	p := startPlane(t)
	require.NoError(t, p.original.Endorse([]byte(p.original.Certificate))) // it is of the same key
	l, err := login.New(login.Config{Credentials: p.original, Note: func(err error) { t.Error(err) }})
	require.NoError(t, err)
	defer l.Close()
	before, err := l.Certificate()
	require.NoError(t, err)
	call(t, l, p)
	p.rotate(t)
	call(t, l, p)
	require.True(t, current(t, l, p))
	now, err := l.Certificate()
	require.NoError(t, err)
	assert.NotEqual(t, before.Certificate[0], now.Certificate[0])
	assert.Equal(t, credentials.KeyFingerprint(before.Leaf), credentials.KeyFingerprint(now.Leaf))
	assert.Equal(t, before.Certificate[len(before.Certificate)-1], now.Certificate[len(now.Certificate)-1])
}

// The certificate of an hour is 66 minutes long, 6 of them before it was issued. So it is due
// after 38.
func TestRenew_AfterTwoThirds(t *testing.T) {
	p := startPlane(t)
	l := p.login(t, func(err error) { t.Error(err) })
	p.forward(37 * time.Minute)
	call(t, l, p)
	assert.Zero(t, p.asked.Load())
	first := p.seen.Load()

	p.forward(2 * time.Minute)
	call(t, l, p)
	assert.EqualValues(t, 1, p.asked.Load())
	cert, err := l.Certificate()
	require.NoError(t, err)
	assert.True(t, cert.Leaf.NotAfter.After(first.NotAfter))
	assert.Equal(t, first.SerialNumber, cert.Leaf.SerialNumber)
	call(t, l, p)
	assert.EqualValues(t, 1, p.asked.Load(), "it asks once")
	assert.Equal(t, cert.Leaf.Raw, p.seen.Load().Raw, "calls come by a new connection, with the new certificate")
}

func TestRenew_BeforeUse(t *testing.T) {
	p := startPlane(t)
	for name, use := range map[string]func(*login.Login){
		"for a call of the control plane": func(l *login.Login) { call(t, l, p) },
		"for a connection to an agent": func(l *login.Login) {
			_, err := l.Certificate()
			require.NoError(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p.original = p.credentials(t)
			l := p.login(t, func(err error) { t.Error(err) })
			p.forward(2 * time.Hour)
			before := p.asked.Load()
			use(l)
			assert.Equal(t, before+1, p.asked.Load())
			cert, err := l.Certificate()
			require.NoError(t, err)
			assert.True(t, cert.Leaf.NotAfter.After(p.now()))
		})
	}
}

// The call fails with the reason of the refusal, and connections to agents do not ask each time.
func TestRenew_ReportsRefusal(t *testing.T) {
	p := startPlane(t)
	var noted atomic.Int64
	l := p.login(t, func(error) { noted.Add(1) })
	p.reissue = func(*http.Request) (login.Answer, error) {
		return login.Answer{}, problem.Errorf(problem.Unauthorized, "make a new one", "it was revoked")
	}
	p.forward(2 * time.Hour)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.url, nil)
	require.NoError(t, err)
	resp, err := l.HTTPClient().Do(r)
	if err == nil {
		require.NoError(t, resp.Body.Close())
	}
	var refused *problem.Error
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, "it was revoked", refused.Detail)

	before := p.asked.Load()
	for range 3 {
		cert, err := l.Certificate()
		require.NoError(t, err)
		assert.True(t, cert.Leaf.NotAfter.Before(p.now()), "the agent refuses it")
	}
	assert.Equal(t, before+1, p.asked.Load())
	assert.EqualValues(t, 1, noted.Load())
	p.forward(2 * time.Minute)
	_, err = l.Certificate()
	require.NoError(t, err)
	assert.Equal(t, before+2, p.asked.Load())
}
