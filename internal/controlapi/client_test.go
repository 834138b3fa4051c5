package controlapi_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/freeport"
	"github.com/pipeops/pipeops-vm-agent/test/logbook"
	"github.com/pipeops/pipeops-vm-agent/test/selfsigned"
)

func TestClient_AllCalls(t *testing.T) {
	ca := newAuthority(t)
	token := newTestToken(t, "")
	beat := controlapi.Heartbeat{Clock: time.Now().UTC().Truncate(time.Second), AgentVersion: "1", Capacity: controlapi.Capacity{Nodes: 3}}
	oldKey := selfsigned.Key(t)
	b := &backend{
		register: func(got string, req controlapi.RegisterRequest) (controlapi.Identity, error) {
			assert.Equal(t, token.Credential(), got)
			assert.Equal(t, "shop", req.Name)
			return controlapi.Identity{AgentID: "a1", HeartbeatInterval: 30}, nil
		},
		check: func(credential string) (controlapi.TokenState, error) {
			assert.Equal(t, token.Credential(), credential)
			return controlapi.TokenState{ID: token.ID, UsesLeft: new(3)}, nil
		},
		renew: func(agentID string, req controlapi.RenewRequest) (controlapi.Identity, error) {
			if agentID == "" {
				assert.True(t, controlapi.VerifyRecovery(oldKey.Public(), req))
				req.CSR = "other"
				assert.False(t, controlapi.VerifyRecovery(oldKey.Public(), req), "the proof is for one request")
				agentID = "recovered"
			}
			return controlapi.Identity{AgentID: agentID}, nil
		},
		heartbeat: func(agentID string, got controlapi.Heartbeat) (controlapi.HeartbeatAnswer, error) {
			assert.Equal(t, "leaf", agentID)
			assert.Equal(t, beat, got)
			return controlapi.HeartbeatAnswer{IntervalSeconds: 5, RevokedRunners: []string{"01"}}, nil
		},
		events: func(agentID string, events []controlapi.Event) error {
			assert.Equal(t, "leaf", agentID)
			assert.Len(t, events, 1)
			return nil
		},
	}
	var log logbook.Book
	c := clientOf(t, ca, handlerOf(b, zerolog.New(&log)))

	id, err := c.Register(t.Context(), token, soundRegister())
	require.NoError(t, err)
	assert.Equal(t, controlapi.Identity{AgentID: "a1", HeartbeatInterval: 30}, id)
	state, err := c.CheckToken(t.Context(), token, controlapi.TokenCheck{})
	require.NoError(t, err)
	assert.Equal(t, controlapi.TokenState{ID: token.ID, UsesLeft: new(3)}, state)
	require.NoError(t, c.CheckIdentity(t.Context()))
	id, err = c.Renew(t.Context(), "csr")
	require.NoError(t, err)
	assert.Equal(t, "leaf", id.AgentID)
	id, err = c.Recover(t.Context(), "old", oldKey, "csr")
	require.NoError(t, err)
	assert.Equal(t, "recovered", id.AgentID)
	answer, err := c.Heartbeat(t.Context(), beat)
	require.NoError(t, err)
	assert.Equal(t, controlapi.HeartbeatAnswer{IntervalSeconds: 5, RevokedRunners: []string{"01"}}, answer)
	require.NoError(t, c.Events(t.Context(), controlapi.EventsRequest{Events: []controlapi.Event{{ID: "e", Type: "app.healthy", App: &controlapi.AppEvent{Namespace: "n", Name: "a"}}}}))
	await.Until(t, "the call is logged", func() bool { return log.Count("/v1/agent/events", `"agent":"leaf"`) == 1 })
}

func TestRegister_ChecksFingerprint(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	b := &backend{register: func(string, controlapi.RegisterRequest) (controlapi.Identity, error) {
		return controlapi.Identity{AgentID: "a1"}, nil
	}}
	register := func(t *testing.T, cert tls.Certificate, trust controlapi.Trust, host string) error {
		t.Helper()
		s := serveTLS(t, handlerOf(b, zerolog.Nop()), cert)
		url := strings.Replace(s.URL, "127.0.0.1", host, 1)
		cfg, err := trust.TLSConfig(url)
		require.NoError(t, err)
		now := trust.Now
		if now == nil {
			now = time.Now
		}
		c := newClient(t, url, cfg, func(c *controlapi.ClientConfig) { c.Now = now })
		_, err = c.Register(t.Context(), newTestToken(t, trust.Fingerprint), soundRegister())
		return err
	}
	pin := controlapi.Trust{Fingerprint: controlapi.Fingerprint(ca.cert)}

	for name, c := range map[string]struct {
		by    authority
		spoil func(*tls.Certificate)
		leaf  func(*x509.Certificate)
		trust controlapi.Trust
		code  controlapi.Code
		words []string
	}{
		"right":                   {by: ca, trust: pin},
		"roots from a file":       {by: ca, trust: controlapi.Trust{Roots: ca.pool()}},
		"no fingerprint, no root": {by: ca, code: controlapi.CodeWrongCA, words: []string{"--ca-file"}},
		"wrong CA": {by: other, trust: pin, code: controlapi.CodeWrongCA,
			words: []string{"127.0.0.1:", pin.Fingerprint, controlapi.Fingerprint(other.cert), "token create"}},
		"the right CA shown by an impostor": {by: other, trust: pin, code: controlapi.CodeWrongCA, words: []string{"not issued by a CA"},
			spoil: func(c *tls.Certificate) { c.Certificate[1] = ca.cert.Raw }},
		"a leaf that pretends to be the CA": {by: ca, trust: pin, code: controlapi.CodeWrongCA,
			spoil: func(c *tls.Certificate) { c.Certificate = c.Certificate[:1] }},
		"another name": {by: ca, trust: pin, code: controlapi.CodeNameMismatch, words: []string{"control.example.com", "--advertise-api"},
			leaf: func(c *x509.Certificate) { c.DNSNames, c.IPAddresses = []string{"control.example.com"}, nil }},
		"not a server's certificate": {by: ca, trust: pin, code: controlapi.CodeWrongCA,
			leaf: func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }},
	} {
		t.Run(name, func(t *testing.T) {
			if c.leaf == nil {
				c.leaf = unchanged
			}
			cert := c.by.issue(t, c.leaf)
			if c.spoil != nil {
				c.spoil(&cert)
			}
			err := register(t, cert, c.trust, "127.0.0.1")
			if c.code == "" {
				require.NoError(t, err)
				require.NoError(t, register(t, cert, c.trust, "localhost"))
				return
			}
			assert.False(t, requireProblem(t, err, c.code, c.words...).Passing())
		})
	}
	for name, days := range map[string]int{"behind": -3, "ahead": 200} {
		for kind, trust := range map[string]controlapi.Trust{"pinned": pin, "roots": {Roots: ca.pool()}} {
			t.Run("clock "+name+" "+kind, func(t *testing.T) {
				trust.Now = func() time.Time { return time.Now().AddDate(0, 0, days) }
				err := register(t, ca.issue(t, unchanged), trust, "127.0.0.1")
				requireProblem(t, err, controlapi.CodeClockSkew, name, "timedatectl set-ntp true", trust.Now().UTC().Format(time.DateOnly))
			})
		}
	}
}

func TestClockSkew(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for off, words := range map[time.Duration]string{2 * time.Hour: "2h0m0s ahead of", -2 * time.Hour: "2h0m0s behind"} {
		e := controlapi.ClockSkew(now.Add(off), now)
		requireProblem(t, e, controlapi.CodeClockSkew, words, now.Format(time.RFC3339), now.Add(off).Format(time.RFC3339), "timedatectl")
		assert.Equal(t, "clock", e.Field)
	}
	assert.Nil(t, controlapi.ClockSkew(now.Add(controlapi.MaxClockSkew), now))
}

func TestClient_ReportsUnreachable(t *testing.T) {
	closed := freeport.Address(t)
	silent, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = silent.Close() })

	for name, c := range map[string]struct {
		host, words string
		patience    time.Duration
	}{
		"refused": {closed, "refused", time.Minute},
		"silent":  {silent.Addr().String(), "did not answer in time", 50 * time.Millisecond},
		"name":    {"nowhere.invalid:8443", "cannot be resolved", time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			client := newClient(t, "https://"+c.host, &tls.Config{MinVersion: tls.VersionTLS13}, func(c *controlapi.ClientConfig) { c.Retries = 1 })
			ctx, cancel := context.WithTimeout(t.Context(), c.patience)
			defer cancel()
			_, err := client.Heartbeat(ctx, controlapi.Heartbeat{})
			e := requireProblem(t, err, controlapi.CodeUnreachable, c.host, c.words)
			assert.True(t, e.Passing())
		})
	}
	t.Run("plain HTTP", func(t *testing.T) {
		plain := &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: time.Minute}
		ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		require.NoError(t, err)
		done := make(chan error, 1)
		go func() { done <- plain.Serve(ln) }()
		client := newClient(t, "https://"+ln.Addr().String(), &tls.Config{MinVersion: tls.VersionTLS13}, func(c *controlapi.ClientConfig) { c.Retries = -1 })
		_, err = client.Heartbeat(t.Context(), controlapi.Heartbeat{})
		requireProblem(t, err, controlapi.CodeUnreachable, ln.Addr().String(), "does not speak TLS")
		require.NoError(t, plain.Close())
		require.ErrorIs(t, await.Receive(t, done, "the end of the server"), http.ErrServerClosed)
	})
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		client := newClient(t, "https://"+closed, &tls.Config{MinVersion: tls.VersionTLS13}, noChange)
		_, err := client.Heartbeat(ctx, controlapi.Heartbeat{})
		require.ErrorIs(t, err, context.Canceled)
	})
}

func TestClient_RetriesTransientErrors(t *testing.T) {
	ca := newAuthority(t)
	var calls atomic.Int32
	var failure *controlapi.Error
	b := &backend{heartbeat: func(string, controlapi.Heartbeat) (controlapi.HeartbeatAnswer, error) {
		if calls.Add(1) <= 2 {
			return controlapi.HeartbeatAnswer{}, failure
		}
		return controlapi.HeartbeatAnswer{IntervalSeconds: 1}, nil
	}}
	c := clientOf(t, ca, handlerOf(b, zerolog.Nop()))

	failure = controlapi.Errorf("unavailable", "wait", "later")
	_, err := c.Heartbeat(t.Context(), controlapi.Heartbeat{})
	require.NoError(t, err)
	assert.Equal(t, int32(3), calls.Load())

	calls.Store(0)
	failure = controlapi.Errorf(controlapi.CodeRevoked, "ask", "revoked")
	_, err = c.Heartbeat(t.Context(), controlapi.Heartbeat{})
	requireProblem(t, err, controlapi.CodeRevoked, "revoked")
	assert.Equal(t, int32(1), calls.Load(), "what is final is not tried again")
}

func TestClient_HonoursRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := []string{
			"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 30\r\nContent-Length: 0\r\n\r\n",
			"HTTP/1.1 200 OK\r\nContent-Length: 21\r\n\r\n" + `{"intervalSeconds":7}`,
		}
		s := &streams{dial: func(context.Context) (net.Conn, error) {
			here, there := net.Pipe()
			answer := answers[0]
			answers = answers[1:]
			go func() {
				defer func() { _ = there.Close() }()
				r, err := http.ReadRequest(bufio.NewReader(there))
				if assert.NoError(t, err) {
					_, err = io.Copy(io.Discard, r.Body)
					assert.NoError(t, err)
					_, err = io.WriteString(there, answer)
					assert.NoError(t, err)
				}
			}()
			return here, nil
		}}
		c := newClient(t, "https://nowhere.invalid", nil, func(c *controlapi.ClientConfig) { c.Streams = s })
		began := time.Now()
		answer, err := c.Heartbeat(t.Context(), controlapi.Heartbeat{})
		require.NoError(t, err)
		assert.Equal(t, 7, answer.IntervalSeconds)
		assert.Equal(t, 30*time.Second, time.Since(began))
	})
}

func TestClient_UsesRenewedCertificate(t *testing.T) {
	ca := newAuthority(t)
	var seen []string
	b := &backend{heartbeat: func(agentID string, _ controlapi.Heartbeat) (controlapi.HeartbeatAnswer, error) {
		seen = append(seen, agentID)
		return controlapi.HeartbeatAnswer{}, nil
	}}
	s := serveTLS(t, handlerOf(b, zerolog.Nop()), ca.issue(t, unchanged))
	var current atomic.Pointer[tls.Config]
	c := newClient(t, s.URL, nil, func(c *controlapi.ClientConfig) { c.TLS = current.Load })
	for _, name := range []string{"first", "second"} {
		cert := ca.issue(t, func(c *x509.Certificate) { c.Subject.CommonName = name })
		current.Store(&tls.Config{MinVersion: tls.VersionTLS13, RootCAs: ca.pool(), Certificates: []tls.Certificate{cert}})
		_, err := c.Heartbeat(t.Context(), controlapi.Heartbeat{})
		require.NoError(t, err)
	}
	assert.Equal(t, []string{"first", "second"}, seen)
}

func TestClient_RefusesForeignResponse(t *testing.T) {
	ca := newAuthority(t)
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		words  string
	}{
		"page":    {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }, "not JSON"},
		"endless": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 2<<20)) }, "too long"},
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://elsewhere.invalid/", http.StatusTemporaryRedirect)
		}, "307"},
	} {
		t.Run(name, func(t *testing.T) {
			s := serveTLS(t, c.answer, ca.issue(t, unchanged))
			client := newClient(t, s.URL, &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: ca.pool()}, noChange)
			_, err := client.Register(t.Context(), newTestToken(t, ""), soundRegister())
			require.ErrorContains(t, err, c.words)
		})
	}
}

func TestParseURL(t *testing.T) {
	for url, words := range map[string]string{
		"":                        "PIPEOPS_CONTROL_PLANE_URL",
		"http://x":                "https://",
		"x:8443":                  "not a URL",
		"https://":                "not a URL",
		"https://u:secret@x":      "take it out",
		"https://x/?token=secret": "query",
	} {
		_, err := controlapi.ParseURL(url)
		require.ErrorContains(t, err, words, url)
		assert.NotContains(t, err.Error(), "secret")
	}
	_, err := controlapi.NewClient(controlapi.ClientConfig{URL: "https://x"})
	require.ErrorContains(t, err, "TLS")
}

// The responses break off after fields that a caller would take: an error never comes with a
// part of an identity.
func TestClient_ErrorHasNoResult(t *testing.T) {
	ca := newAuthority(t)
	c := clientOf(t, ca, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"agentId":"a1","certificate":"c","id":"t1","intervalSeconds":5,"seq":7,"caBundle":1,"expiresAt":1,"labels":1,"hash":1}`))
	}))
	key := selfsigned.Key(t)
	for name, call := range map[string]func() (any, error){
		"register":  func() (any, error) { return c.Register(t.Context(), newTestToken(t, ""), soundRegister()) },
		"renew":     func() (any, error) { return c.Renew(t.Context(), "csr") },
		"recover":   func() (any, error) { return c.Recover(t.Context(), "old", key, "csr") },
		"token":     func() (any, error) { return c.CheckToken(t.Context(), newTestToken(t, ""), controlapi.TokenCheck{}) },
		"heartbeat": func() (any, error) { return c.Heartbeat(t.Context(), controlapi.Heartbeat{}) },
		"audit":     func() (any, error) { return c.Audit(t.Context(), controlapi.AuditRequest{}) },
	} {
		got, err := call()
		if !assert.ErrorContains(t, err, "not JSON", name) {
			continue
		}
		assert.Zero(t, got, name)
	}
}

// TestEvents_FitWhatIsTaken: the author of one App chooses its image, and who may write its status
// the rest. The control plane would refuse them together with the events of all other Apps.
func TestEvents_FitWhatIsTaken(t *testing.T) {
	var got []controlapi.Event
	c := clientOf(t, newAuthority(t), handlerOf(&backend{events: func(_ string, events []controlapi.Event) error {
		got = append(got, events...)
		return nil
	}}, zerolog.Nop()))
	event := func(change func(*controlapi.Event)) controlapi.Event {
		e := controlapi.Event{ID: "1", Type: "app.failed", Time: time.Unix(1, 0).UTC(), App: &controlapi.AppEvent{Namespace: "shop", Name: "web", Image: "web:1"}}
		change(&e)
		return e
	}
	require.NoError(t, c.Events(t.Context(), controlapi.EventsRequest{Events: []controlapi.Event{
		event(func(e *controlapi.Event) { e.App.Image = "wéb:\x01" + strings.Repeat("a", 600) }),
		event(func(e *controlapi.Event) { e.App.Cause = strings.Repeat("é", 65) }),
		event(func(e *controlapi.Event) {
			e.App.Message, e.App.Fix = strings.Repeat("é", 5000), strings.Repeat("é", 5000)
		}),
		event(func(e *controlapi.Event) { e.Type = "app.anything" }),
		event(func(*controlapi.Event) {}),
	}}))
	require.Len(t, got, 4)
	assert.True(t, strings.HasPrefix(got[0].App.Image, "w?b:?aaa"), got[0].App.Image)
	assert.Len(t, got[0].App.Image, 512)
	assert.Len(t, got[1].App.Cause, 64)
	assert.Len(t, []rune(got[2].App.Message), 4096)
	assert.Len(t, []rune(got[2].App.Fix), 4096)
	assert.Equal(t, event(func(*controlapi.Event) {}), got[3])
}
