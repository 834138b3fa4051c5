package controlapi_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

const (
	registerPath = "/v1/agents/register"
	soundBody    = `{"name":"shop","clusterUID":"u","csr":"c","agentVersion":"1","runnerApiVersion":"v1","clock":"2026-11-21T12:00:00Z"}`
)

// send makes one plain request to the handler.
func send(t testing.TB, h http.Handler, path, body string, change func(*http.Request)) *http.Response {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer pipeops_x")
	r.TLS = &tls.ConnectionState{}
	change(r)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func asIs(*http.Request) {}

func asAgent(r *http.Request) {
	r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{peerCertificate("a1")}}
}

// noServerError wants another answer to a body that a fuzz test made.
func noServerError(t *testing.T, resp *http.Response, body string) {
	t.Helper()
	_ = resp.Body.Close()
	require.Less(t, resp.StatusCode, http.StatusInternalServerError, body)
}

func problemOf(t *testing.T, resp *http.Response) *problem.Error {
	t.Helper()
	defer func() { _ = resp.Body.Close() }()
	require.Equal(t, problem.ContentType, resp.Header.Get("Content-Type"))
	e := problem.Read(resp)
	assert.NotEmpty(t, e.RequestID)
	assert.Equal(t, resp.Header.Get(problem.RequestIDHeader), e.RequestID)
	return e
}

func neverCalled(t testing.TB) *backend {
	t.Helper()
	return &backend{register: func(string, controlapi.RegisterRequest) (controlapi.Identity, error) {
		t.Error("the backend was called")
		return controlapi.Identity{}, nil
	}}
}

func TestRegister_RefusesInvalid(t *testing.T) {
	h := handlerOf(neverCalled(t), zerolog.Nop())
	with := func(from, to string) string { return strings.Replace(soundBody, from, to, 1) }
	for name, c := range map[string]struct {
		body   string
		change func(*http.Request)
		code   problem.Code
		field  string
		words  string
	}{
		"malformed JSON":  {body: `{"name":`, code: problem.BadRequest, field: "body", words: "unexpected end of JSON"},
		"oversized body":  {body: `{"csr":"` + strings.Repeat("x", 2<<20) + `"}`, code: problem.TooLarge, words: "too large"},
		"unknown field":   {body: with(`"csr"`, `"colour":"red","csr"`), code: problem.Invalid, field: "colour", words: "unexpected property"},
		"missing field":   {body: with(`"csr":"c",`, ``), code: problem.Invalid, field: "csr", words: "property csr"},
		"bad name":        {body: with("shop", "Shop!"), code: problem.Invalid, field: "name", words: "has to be"},
		"wrong type":      {body: with(`"shop"`, `7`), code: problem.Invalid, field: "name", words: "expected string"},
		"wrong clock":     {body: with("2026-11-21T12:00:00Z", "noon"), code: problem.Invalid, field: "clock", words: "RFC 3339"},
		"no token":        {body: soundBody, change: func(r *http.Request) { r.Header.Del("Authorization") }, code: controlapi.CodeTokenUnknown, words: "no enrolment token"},
		"not a bearer":    {body: soundBody, change: func(r *http.Request) { r.Header.Set("Authorization", "Basic abc") }, code: controlapi.CodeTokenUnknown, words: "no enrolment token"},
		"another type":    {body: soundBody, change: func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }, code: problem.MediaType, field: "body", words: "content type"},
		"another method":  {body: soundBody, change: func(r *http.Request) { r.Method = http.MethodGet }, code: problem.NotAllowed, words: "GET"},
		"another address": {body: soundBody, change: func(r *http.Request) { r.URL.Path = "/v2" }, code: problem.NotFound, words: "/v2"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.change == nil {
				c.change = asIs
			}
			e := problemOf(t, send(t, h, registerPath, c.body, c.change))
			assert.Equal(t, c.code, e.Code, e.Error())
			assert.Equal(t, c.field, e.Field, e.Error())
			assert.Contains(t, e.Detail, c.words)
			assert.NotEmpty(t, e.Fix)
		})
	}
}

func TestRegister_BackendErrors(t *testing.T) {
	var failure error
	b := &backend{register: func(string, controlapi.RegisterRequest) (controlapi.Identity, error) {
		return controlapi.Identity{}, failure
	}}
	var log bytes.Buffer
	h := handlerOf(b, zerolog.New(&log))

	taken := controlapi.Errorf(controlapi.CodeNameTaken, "choose another", "name is taken").WithField("name").WithRetryAfter(time.Second)
	failure = taken
	resp := send(t, h, registerPath, soundBody, asIs)
	assert.Equal(t, "1", resp.Header.Get("Retry-After"))
	e := problemOf(t, resp)
	assert.Equal(t, http.StatusConflict, e.Status)
	assert.Equal(t, "name: name is taken (fix: choose another)", e.Error())
	assert.Empty(t, taken.RequestID, "the backend's error is not written into")

	failure = errors.New("disk on fire")
	e = problemOf(t, send(t, h, registerPath, soundBody, asIs))
	assert.Equal(t, problem.Internal, e.Code)
	assert.NotContains(t, e.Error(), "fire")
	assert.Contains(t, log.String(), "disk on fire", "but the operator sees it")
	assert.Contains(t, log.String(), e.RequestID)
}

func TestRegister_RecoversPanic(t *testing.T) {
	b := &backend{register: func(string, controlapi.RegisterRequest) (controlapi.Identity, error) { panic("boom") }}
	e := problemOf(t, send(t, handlerOf(b, zerolog.Nop()), registerPath, soundBody, asIs))
	assert.Equal(t, problem.Internal, e.Code)
	assert.NotContains(t, e.Error(), "boom")
}

func TestRegister_LogsWithoutSecrets(t *testing.T) {
	b := &backend{register: func(string, controlapi.RegisterRequest) (controlapi.Identity, error) {
		return controlapi.Identity{AgentID: "a1"}, nil
	}}
	var log bytes.Buffer
	resp := send(t, handlerOf(b, zerolog.New(&log)), registerPath, soundBody, asIs)
	_ = resp.Body.Close()
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	assert.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
	assert.NotContains(t, log.String(), "pipeops_x")
	assert.NotContains(t, log.String(), "shop")
}

func TestHandler_RefusesStrangerBeforeBody(t *testing.T) {
	h := handlerOf(&backend{}, zerolog.Nop())
	for _, path := range []string{"/v1/agent/heartbeat", "/v1/agent/events"} {
		body := &countingReader{r: strings.NewReader(strings.Repeat("x", 1<<20))}
		resp := send(t, h, path, "", func(r *http.Request) { r.Body = io.NopCloser(body) })
		assert.Equal(t, controlapi.CodeCertificateUnknown, problemOf(t, resp).Code)
		assert.Zero(t, body.n)
	}
}

type countingReader struct {
	r io.Reader
	n int
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += n
	return n, err
}

func TestRenew_NeedsCertificateOrProof(t *testing.T) {
	b := &backend{renew: func(agentID string, req controlapi.RenewRequest) (controlapi.Identity, error) {
		assert.Empty(t, agentID)
		assert.Equal(t, "p", req.Proof)
		return controlapi.Identity{AgentID: "a1"}, nil
	}}
	h := handlerOf(b, zerolog.Nop())
	const path = "/v1/agent/renew"
	e := problemOf(t, send(t, h, path, `{"csr":"c","clock":"2026-11-21T12:00:00Z"}`, asIs))
	assert.Equal(t, controlapi.CodeCertificateUnknown, e.Code)
	resp := send(t, h, path, `{"csr":"c","clock":"2026-11-21T12:00:00Z","proof":"p","oldCertificate":"o"}`, asIs)
	_ = resp.Body.Close()
	assert.Equal(t, http.StatusOK, resp.StatusCode)
}

// Terminals show versions and IDs beside a key to be approved.
func TestRegister_RefusesControlCharacters(t *testing.T) {
	h := handlerOf(neverCalled(t), zerolog.Nop())
	for _, evil := range []string{"\\u001b[2K", "\\u009b", "\\u202e", "\\u2028", "\\u007f"} {
		for _, field := range []string{"clusterUID", "agentVersion", "runnerApiVersion", "kubernetesVersion", "distribution", "provider"} {
			body := strings.Replace(soundBody, "{", `{"`+field+`":"a`+evil+`",`, 1)
			body = regexp.MustCompile(`,"`+field+`":"[^"]*"`).ReplaceAllString(body, "") // JSON's last would win
			e := problemOf(t, send(t, h, registerPath, body, asIs))
			assert.Equal(t, []any{problem.Invalid, field}, []any{e.Code, e.Field}, body)
		}
	}
}

// An Identify that returns an ID beside its error gives no agent to any call. A proof helps only
// against an expired certificate.
func TestRenew_RefusedPeer(t *testing.T) {
	var asked []string
	b := &backend{renew: func(agentID string, _ controlapi.RenewRequest) (controlapi.Identity, error) {
		asked = append(asked, agentID)
		return controlapi.Identity{AgentID: "a1"}, nil
	}}
	var refusal error
	h := controlapi.NewHandler(controlapi.HandlerConfig{Backend: b, Version: "test", Log: zerolog.Nop(),
		Identify: func(*http.Request) (string, error) { return "a1", refusal }})
	const body = `{"csr":"c","clock":"2026-11-21T12:00:00Z","proof":"x","oldCertificate":"o"}`
	presents := func(r *http.Request) {
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{}}}
	}
	for _, code := range []controlapi.Code{controlapi.CodeIdentityCloned, controlapi.CodeRevoked, controlapi.CodeAgentUnknown, controlapi.CodeCertificateUnknown} {
		refusal = controlapi.Errorf(code, "do this", "refused")
		assert.Equal(t, code, problemOf(t, send(t, h, "/v1/agent/renew", body, presents)).Code)
	}
	refusal = errors.New("the database is away")
	assert.Equal(t, problem.Internal, problemOf(t, send(t, h, "/v1/agent/renew", body, presents)).Code)
	assert.Empty(t, asked)
	refusal = controlapi.Errorf(controlapi.CodeCertificateExpired, "prove the old key", "expired")
	resp := send(t, h, "/v1/agent/renew", body, presents)
	_ = resp.Body.Close()
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	assert.Equal(t, []string{""}, asked, "who renews is for the proof to say")
}

func TestOpenAPI_CoversCalls(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "/openapi.json", nil)
	w := httptest.NewRecorder()
	handlerOf(&backend{}, zerolog.Nop()).ServeHTTP(w, r)
	assert.Equal(t, http.StatusOK, w.Code)
	for _, want := range []string{registerPath, "/v1/agent/renew", "/v1/agent/heartbeat", "/v1/agent/events", `"3.1.0"`, "mutualTLS"} {
		assert.Contains(t, w.Body.String(), want)
	}
}

func FuzzRegister(f *testing.F) {
	f.Add(soundBody)
	f.Add(`{"name":null,"labels":{"":""}}`)
	f.Add(`{"clock":"0001-01-01T00:00:00Z"} {}`)
	h := handlerOf(&backend{register: func(_ string, req controlapi.RegisterRequest) (controlapi.Identity, error) {
		if req.Name == "" || len(req.Name) > 63 || len(req.Labels) > 64 || len(req.CSR) > 16384 {
			panic("let through what the wire forbids")
		}
		return controlapi.Identity{}, nil
	}}, zerolog.Nop())
	f.Fuzz(func(t *testing.T, body string) {
		noServerError(t, send(t, h, registerPath, body, asIs), body)
	})
}

// FuzzAgentCalls sends bodies to the calls of an agent with a certificate.
func FuzzAgentCalls(f *testing.F) {
	paths := []string{"/v1/agent/renew", "/v1/agent/events", "/v1/agent/audit"}
	f.Add(0, `{"csr":"-----BEGIN CERTIFICATE REQUEST-----"}`)
	f.Add(1, `{"events":[{"id":"1","type":"app.healthy","app":{"namespace":"a","name":"b"}}]}`)
	f.Add(2, `{"records":[{"seq":1}]}`)
	f.Add(1, `{"events":null}`)
	h := handlerOf(&backend{
		renew: func(_ string, req controlapi.RenewRequest) (controlapi.Identity, error) {
			if req.CSR == "" || len(req.CSR) > 16384 {
				panic("let through what the wire forbids")
			}
			return controlapi.Identity{}, nil
		},
		events: func(_ string, events []controlapi.Event) error {
			for _, e := range events {
				if e.Type == "" {
					panic("let through what the wire forbids")
				}
			}
			return nil
		},
	}, zerolog.Nop())
	f.Fuzz(func(t *testing.T, call int, body string) {
		path := paths[uint(call)%uint(len(paths))]
		noServerError(t, send(t, h, path, body, asAgent), body)
	})
}

func FuzzHeartbeat(f *testing.F) {
	f.Add(`{"clock":"2026-11-21T12:00:00Z","agentVersion":"v1","runnerApiVersion":"v1","kubernetesVersion":"","distribution":"","tunnelPhase":"",` +
		`"capacity":{"nodes":1,"readyNodes":1,"pods":1,"runningPods":1,"cpuMillis":1,"memoryBytes":1},"update":{"state":"failed","offer":"o","from":"v1","to":"v2","reason":"r"}}`)
	f.Add(`{"update":{"state":"bored"}}`)
	f.Add(`{"update":null}`)
	f.Add(`{"checks":{"findings":[{"check":"memory","status":"failed","detail":"40 MiB are available","fix":"stop something"}]}}`)
	f.Add(`{"checks":{"findings":[{"check":"memory","status":"ok","detail":""}]}}`)
	h := handlerOf(&backend{heartbeat: func(_ string, beat controlapi.Heartbeat) (controlapi.HeartbeatAnswer, error) {
		if u := beat.Update; u != nil && (u.State == "" || len(u.Offer) > 4*64 || len(u.From) > 4*128 || len(u.Reason) > 4*1024) {
			panic("let through what the wire forbids")
		}
		if beat.Checks != nil && !bounded(beat.Checks.Findings) {
			panic("let through findings that the wire forbids")
		}
		return controlapi.HeartbeatAnswer{}, nil
	}}, zerolog.Nop())
	f.Fuzz(func(t *testing.T, body string) {
		noServerError(t, send(t, h, "/v1/agent/heartbeat", body, asAgent), body)
	})
}

func bounded(findings []controlapi.Finding) bool {
	for _, f := range findings {
		if f.Check == "" || f.Detail == "" || f.Status != "failed" && f.Status != "warning" ||
			len(f.Detail) > 4*controlapi.MaxFindingDetail || len(f.Fix) > 4*controlapi.MaxFindingDetail {
			return false
		}
	}
	return len(findings) <= controlapi.MaxFindings
}

func TestClipReason(t *testing.T) {
	assert.Equal(t, "it crashed: panic: oh", controlapi.ClipReason("it crashed:\n\tpanic: oh\n"))
	assert.Equal(t, "ab", controlapi.ClipReason("a\xffb"))
	long := controlapi.ClipReason(strings.Repeat("ä", 5000))
	assert.Len(t, []rune(long), 1024)
	assert.True(t, strings.HasSuffix(long, "…"))
}

func peerCertificate(name string) *x509.Certificate {
	c := &x509.Certificate{}
	c.Subject.CommonName = name
	return c
}
