package server_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnertest"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/transport"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/memnet"
)

// nowhere is a Kubernetes API that nobody gets to.
type nowhere struct{}

func (nowhere) APIServer() (*url.URL, http.RoundTripper, error) {
	return nil, nil, runnerapi.NotSupported("", "nowhere")
}
func (nowhere) OwnNamespace() string { return "pipeops" }
func (nowhere) Namespaced(context.Context, string, string, string) (bool, error) {
	return true, nil
}

// apiServer is a fake of Kubernetes' API server: a real one is in the tests of test/e2e.
type apiServer struct {
	*httptest.Server
	mu      sync.Mutex
	seen    []*http.Request
	open    atomic.Int64 // upgraded connections
	created atomic.Bool  // answer 201
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	a := &apiServer{}
	a.Server = httptest.NewServer(http.HandlerFunc(a.serve))
	t.Cleanup(a.Close)
	return a
}

// APIServer implements backend.KubernetesAPI.
func (a *apiServer) APIServer() (*url.URL, http.RoundTripper, error) {
	u, err := url.Parse(a.URL + "/base")
	return u, withToken{a.Client().Transport}, err
}

// OwnNamespace implements backend.KubernetesAPI.
func (*apiServer) OwnNamespace() string { return "pipeops" }

// Namespaced implements backend.KubernetesAPI.
func (*apiServer) Namespaced(_ context.Context, _, _, resource string) (bool, error) {
	return resource != "nodes" && resource != "namespaces", nil
}

// withToken is the agent's own credentials.
type withToken struct{ http.RoundTripper }

func (w withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer of-the-agent")
	return w.RoundTripper.RoundTrip(r)
}

func (a *apiServer) serve(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	a.seen = append(a.seen, r)
	a.mu.Unlock()
	switch {
	case r.Header.Get("Upgrade") != "":
		a.echo(w, r)
	case r.URL.Query().Get("watch") == "true":
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	case strings.HasSuffix(r.URL.Path, "/unauthorized"):
		w.Header().Set("WWW-Authenticate", "Bearer")
		w.WriteHeader(http.StatusUnauthorized)
	case strings.HasSuffix(r.URL.Path, "/forbidden"): // with what was sent
		w.Header().Set("Content-Length", strconv.FormatInt(r.ContentLength, 10))
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.Copy(w, r.Body)
	default:
		w.Header().Set("Set-Cookie", "a=b")
		if a.created.Load() {
			w.WriteHeader(http.StatusCreated)
		}
		_, _ = io.Copy(w, r.Body)
	}
}

// echo is what an upgraded connection does, until its caller leaves.
func (a *apiServer) echo(w http.ResponseWriter, r *http.Request) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	a.open.Add(1)
	defer a.open.Add(-1)
	defer func() { _ = conn.Close() }()
	_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + r.Header.Get("Upgrade") +
		"\r\nSec-WebSocket-Protocol: " + r.Header.Get("Sec-WebSocket-Protocol") + "\r\n\r\n")
	_ = rw.Flush()
	_, _ = io.Copy(conn, rw)
}

func (a *apiServer) last() *http.Request {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.seen[len(a.seen)-1]
}

func (a *apiServer) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.seen)
}

// kubernetes is a fake agent before a fake API server, with a policy that allows all.
func kubernetes(t *testing.T) (*runnertest.Agent, *apiServer, *asked, *auditor) {
	t.Helper()
	agent, api, p, log := kubernetesToStart(t)
	agent.Start()
	return agent, api, p, log
}

// kubernetesToStart is the same before it serves.
func kubernetesToStart(t *testing.T) (*runnertest.Agent, *apiServer, *asked, *auditor) {
	t.Helper()
	api, p, log := newAPIServer(t), newAsked(func(runnerapi.Intent) error { return nil }), &auditor{}
	agent := runnertest.New(t, runnertest.NewBackend())
	agent.Policy, agent.Kubernetes, agent.Audit = p, api, log
	return agent, api, p, log
}

func statusIn(t *testing.T, answer []byte) metav1.Status {
	t.Helper()
	var status metav1.Status
	require.NoError(t, json.Unmarshal(answer, &status), string(answer))
	assert.Equal(t, "Status", status.Kind)
	return status
}

// Sends every header that could name a user.
func TestKubernetesAPI_ImpersonatesByPolicy(t *testing.T) {
	agent, api, _, _ := kubernetes(t)
	r := newRaw(t, agent)
	resp, answer := r.do(http.MethodPost, "/v1/kubernetes/api/v1/namespaces/shop/configmaps?fieldManager=x", `{"a":"b"}`,
		"Content-Type", "application/json", "Authorization", "Bearer mine", "Proxy-Authorization", "Bearer mine", "Cookie", "a=b",
		"X-Remote-User", "system:admin", "X-Remote-Group", "system:masters", "X-Remote-Extra-A", "b", "X-Forwarded-For", "192.0.2.1", "Forwarded", "for=192.0.2.1",
		"X-Anything", "else", "Sec-WebSocket-Protocol", "v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.bWluZQ", "Kubectl-Command", "kubectl create")
	require.Equal(t, http.StatusOK, resp.StatusCode, string(answer))
	assert.JSONEq(t, `{"a":"b"}`, string(answer))
	assert.Empty(t, resp.Header.Get("Set-Cookie"))
	got := api.last()
	assert.Equal(t, "/base/api/v1/namespaces/shop/configmaps?fieldManager=x", got.URL.String())
	assert.Equal(t, []string{"somebody"}, got.Header["Impersonate-User"])
	assert.Equal(t, []string{"some", "people"}, got.Header["Impersonate-Group"])
	assert.Equal(t, "Bearer of-the-agent", got.Header.Get("Authorization"))
	assert.Equal(t, "v5.channel.k8s.io", got.Header.Get("Sec-WebSocket-Protocol"))
	assert.Equal(t, "kubectl create", got.Header.Get("Kubectl-Command"))
	for _, name := range []string{"Proxy-Authorization", "Cookie", "X-Remote-User", "X-Remote-Group",
		"X-Remote-Extra-A", "X-Forwarded-For", "Forwarded", "X-Anything"} {
		assert.NotContains(t, got.Header, name)
	}
}

func TestKubernetesAPI_RefusesPathTraversal(t *testing.T) {
	agent, api, p, _ := kubernetes(t)
	r := newRaw(t, agent)
	for _, path := range []string{
		"/../cluster", "/api/v1/namespaces/shop/../pipeops/secrets", "/api/v1/namespaces/shop/%2e%2e/pipeops/secrets", "/api//v1/pods", "/./version",
		"/api/v1/namespaces/shop%2fpods/x", "/api/v1/namespaces/shop/pods/a%5cb", "/api/v1/..", "//", "/api/v1/namespaces/shop/pods/a%00b",
		"/" + strings.Repeat("a", 5<<10),
	} {
		resp, answer := r.do(http.MethodGet, "/v1/kubernetes"+path, "")
		assert.Contains(t, []int{http.StatusBadRequest, http.StatusNotFound}, resp.StatusCode, "%s: %s", path, answer)
	}
	assert.Zero(t, api.count(), "none comes to the API server")
	assert.Empty(t, p.all(), "nor to the policy")
}

// The API server's words tell them apart. Kubernetes 1.36 has added to these words.
func TestKubernetesAPI_ExplainsMissingImpersonation(t *testing.T) {
	agent, _, _, _ := kubernetes(t)
	r := newRaw(t, agent)
	for says, own := range map[string]bool{
		`users \"somebody\" is forbidden: User \"agent\" cannot impersonate resource \"users\" in API group \"\" at the cluster scope`: true,
		`pods is forbidden: User \"agent\" cannot impersonate-on:user-info:list resource \"pods\" in the namespace \"shop\"`:           true,
		`pods is forbidden: User \"somebody\" cannot list resource \"pods\" in the namespace \"shop\"`:                                 false,
	} {
		resp, answer := r.do(http.MethodPost, "/v1/kubernetes/api/v1/namespaces/shop/pods/forbidden", `{"kind":"Status","apiVersion":"v1","message":"`+says+`"}`)
		assert.Equal(t, http.StatusForbidden, resp.StatusCode)
		const words = `the API server does not let the agent ask in the name of user "somebody"`
		assert.Equal(t, own, strings.Contains(statusIn(t, answer).Message, words), "%s: %s", says, answer)
	}
}

// kubectl shows the status.
func TestKubernetesAPI_RefusesWithStatus(t *testing.T) {
	agent, api, p, log := kubernetes(t)
	r := newRaw(t, agent)
	p.become(refuseAll)
	resp, answer := r.do(http.MethodGet, "/v1/kubernetes/api/v1/namespaces/shop/pods", "")
	status := statusIn(t, answer)
	assert.Equal(t, http.StatusForbidden, resp.StatusCode)
	assert.Equal(t, "application/json", resp.Header.Get("Content-Type"))
	assert.Equal(t, metav1.StatusReasonForbidden, status.Reason)
	assert.Equal(t, `PipeOps agent: rule "none" does not allow kubernetes-api (fix: ask the owner)`, status.Message)
	assert.Equal(t, metav1.CauseType(runnerapi.CodePolicyDenied), status.Details.Causes[0].Type)
	await.Until(t, "the refusal is recorded", func() bool { return len(log.all()) == 1 })
	assert.Equal(t, runnerapi.CodePolicyDenied, log.all()[0].Code)
	assert.Equal(t, "shop", log.all()[0].Namespace)

	p.become(func(runnerapi.Intent) error { return nil })
	for path, want := range map[string]int{"/unauthorized": http.StatusServiceUnavailable, "/api/v1/namespaces/shop/pods": http.StatusRequestEntityTooLarge} {
		body := ""
		if want == http.StatusRequestEntityTooLarge {
			body = strings.Repeat("a", 3<<20+1)
		}
		resp, answer = r.do(http.MethodPost, "/v1/kubernetes"+path, body)
		assert.Equal(t, want, resp.StatusCode)
		assert.EqualValues(t, want, statusIn(t, answer).Code)
		assert.Empty(t, resp.Header.Get("WWW-Authenticate"))
	}
	p.become(refuseAll)
	resp, answer = r.do(http.MethodGet, "/v1/kubernetes/apis", "")
	assert.Equal(t, http.StatusForbidden, resp.StatusCode)
	assert.Equal(t, "PipeOps agent: rule \"none\" does not allow kubernetes-api (fix: ask the owner)\n", string(answer), "kubectl shows a Status of these as: unknown")
	p.become(func(runnerapi.Intent) error { return nil })
	api.Close()
	resp, answer = r.do(http.MethodGet, "/v1/kubernetes/version", "")
	assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	assert.NotContains(t, string(answer), "127.0.0.1", "where the API server is, is not told")
}

func TestKubernetesAPI_Audited(t *testing.T) {
	agent, _, _, log := kubernetes(t)
	r := newRaw(t, agent)
	r.do(http.MethodGet, "/v1/kubernetes/apis/apps/v1", "")
	r.do(http.MethodPut, "/v1/kubernetes/api/v1/namespaces/shop/secrets/db?labelSelector=secret-mark", `{"data":"secret-mark"}`)
	await.Until(t, "one request is recorded", func() bool { return len(log.all()) == 1 }) // every Runner may ask what there is
	record := log.all()[0]
	assert.Equal(t, runnerapi.KubernetesCall, record.Command)
	assert.Equal(t, []string{"shop", "db"}, []string{record.Namespace, record.Name})
	assert.JSONEq(t, `{"method":"PUT","verb":"update","path":"/api/v1/namespaces/shop/secrets/db","user":"somebody"}`, string(record.Arguments))
	assert.NotContains(t, string(record.Arguments), "secret-mark")
	assert.Equal(t, "update /api/v1/namespaces/shop/secrets/db", record.KubernetesCall(), "as tables show it")
	assert.Empty(t, runnerapi.AuditRecord{Command: "put-app", Arguments: record.Arguments}.KubernetesCall())
}

// upgraded is a connection that became something else.
func upgraded(t *testing.T, agent *runnertest.Agent, path, protocol string) (net.Conn, *http.Response) {
	t.Helper()
	config, err := agent.ClientConfig().Certificate()
	require.NoError(t, err)
	conn, err := (&tls.Dialer{Config: &tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: agent.CA.Pool, ServerName: runnertest.ServerName, Certificates: []tls.Certificate{*config}, NextProtos: []string{"http/1.1"},
	}}).DialContext(t.Context(), "tcp", agent.Address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: "+protocol+"\r\n\r\n")
	require.NoError(t, err)
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	require.NoError(t, err)
	return &buffered{conn, in}, resp
}

type buffered struct {
	net.Conn
	in *bufio.Reader
}

func (b *buffered) Read(p []byte) (int, error) { return b.in.Read(p) }

const execPath = "/v1/kubernetes/api/v1/namespaces/shop/pods/web/exec?command=sh&command=secret-mark"

// The caller's end, a change of the policy and the agent's stop each end the API server's
// connection, with SPDY and WebSocket alike.
func TestKubernetesAPI_UpgradesEndTogether(t *testing.T) {
	agent, api, p, log := kubernetes(t)
	ends := []struct {
		protocol string
		end      func(net.Conn)
	}{
		{"SPDY/3.1", func(c net.Conn) { _ = c.Close() }},
		{"websocket", func(net.Conn) { p.become(refuseAll) }},
		{"websocket", func(net.Conn) { agent.Stop() }},
	}
	for i, e := range ends {
		conn, resp := upgraded(t, agent, execPath, e.protocol)
		require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
		require.Equal(t, e.protocol, resp.Header.Get("Upgrade"))
		_, err := io.WriteString(conn, "ping")
		require.NoError(t, err)
		echo := make([]byte, 4)
		_, err = io.ReadFull(conn, echo)
		require.NoError(t, err)
		assert.Equal(t, "ping", string(echo))
		await.Until(t, "its beginning is recorded", func() bool { return len(log.all()) == 2*i+1 })
		e.end(conn)
		await.Until(t, "the API server's connection has ended", func() bool { return api.open.Load() == 0 })
		await.Until(t, "its end is recorded", func() bool { return len(log.all()) == 2*i+2 })
		p.become(func(runnerapi.Intent) error { return nil })
	}
	records := log.all()
	assert.Equal(t, runnerapi.AuditBegun, records[0].Outcome)
	assert.Equal(t, runnerapi.AuditDone, records[1].Outcome)
	assert.JSONEq(t, `{"method":"GET","verb":"get","path":"/api/v1/namespaces/shop/pods/web/exec","user":"somebody","command":"sh"}`, string(records[0].Arguments))
}

// The setting or the policy gives the limit.
func TestKubernetesAPI_LimitsStreams(t *testing.T) {
	for name, most := range map[string]int{"setting": 1, "policy": 9} {
		t.Run(name, func(t *testing.T) {
			agent, _, p, _ := kubernetesToStart(t)
			agent.Limits = transport.Limits{StreamsPerRunner: most}
			if name == "policy" {
				p.streams = 1
			}
			agent.Start()
			oneStream(t, agent)
		})
	}
}

func oneStream(t *testing.T, agent *runnertest.Agent) {
	t.Helper()
	first, resp := upgraded(t, agent, execPath, "SPDY/3.1")
	require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
	_, resp = upgraded(t, agent, execPath, "SPDY/3.1")
	assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
	assert.NotEmpty(t, resp.Header.Get("Retry-After"))
	require.NoError(t, first.Close())
	await.Until(t, "the place is free again", func() bool {
		conn, resp := upgraded(t, agent, execPath, "SPDY/3.1")
		_ = conn.Close()
		return resp.StatusCode == http.StatusSwitchingProtocols
	})
}

// silentAPI is an API server in memory whose watches have nothing to say.
type silentAPI struct{ nowhere }

// APIServer implements backend.KubernetesAPI.
func (a silentAPI) APIServer() (*url.URL, http.RoundTripper, error) {
	return &url.URL{Scheme: "http", Host: "memory"}, a, nil
}

// RoundTrip implements http.RoundTripper.
func (silentAPI) RoundTrip(r *http.Request) (*http.Response, error) {
	body, end := io.Pipe()
	context.AfterFunc(r.Context(), func() { _ = end.CloseWithError(r.Context().Err()) })
	return &http.Response{StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{"Content-Type": {"application/json"}}, Body: body, ContentLength: -1, Request: r}, nil
}

// Until then the watch is silent for longer than a response may take.
func TestKubernetesAPI_WatchEndsWithPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, pipes := newAsked(func(runnerapi.Intent) error { return nil }), memnet.New()
		agent := runnertest.New(t, runnertest.NewBackend())
		agent.Policy, agent.Kubernetes = p, silentAPI{}
		agent.StartOn(pipes)
		r := newRaw(t, agent)
		r.http.Transport.(*http.Transport).DialContext = pipes.Dial
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+agent.Address+"/v1/kubernetes/api/v1/namespaces/shop/pods?watch=true", nil)
		require.NoError(t, err)
		resp, err := r.http.Do(req)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, resp.StatusCode)
		defer func() { _ = resp.Body.Close() }()
		ended, seen := make(chan error, 1), bytes.Buffer{}
		go func() {
			_, err := seen.ReadFrom(resp.Body)
			ended <- err
		}()
		select {
		case err := <-ended:
			t.Fatal("a silent watch ended: ", err)
		case <-time.After(time.Hour):
		}
		p.become(refuseAll)
		require.NoError(t, <-ended, "it has an end")
		var event metav1.WatchEvent
		require.NoError(t, json.Unmarshal(seen.Bytes(), &event), seen.String())
		assert.Equal(t, "ERROR", event.Type)
		status := statusIn(t, event.Object.Raw)
		assert.Equal(t, metav1.StatusReasonForbidden, status.Reason)
		assert.Contains(t, status.Message, `PipeOps agent: rule "none" does not allow kubernetes-api`)
	})
}

// Under its own name the Kubernetes API has no path prefix, and nothing else is served.
func TestKubernetesAPI_OwnServerName(t *testing.T) {
	agent, api, p, _ := kubernetes(t)
	r := newRaw(t, agent)
	r.http.Transport.(*http.Transport).TLSClientConfig.ServerName = runnerapi.KubernetesServerName(runnertest.ServerName)
	for _, path := range []string{"/api/v1/namespaces/shop/pods", "/version", "/healthz", "/", "/v1/cluster", "/openapi.json"} {
		resp, answer := r.do(http.MethodGet, path, "")
		assert.Equal(t, http.StatusOK, resp.StatusCode, "%s: %s", path, answer)
		assert.Equal(t, "/base"+path, api.last().URL.Path)
	}
	for _, path := range []string{"/../v1/cluster", "/api/v1/namespaces/shop/%2e%2e/pipeops/secrets", "//version"} {
		before := api.count()
		resp, answer := r.do(http.MethodGet, path, "")
		assert.Contains(t, []int{http.StatusBadRequest, http.StatusNotFound}, resp.StatusCode, "%s: %s", path, answer)
		assert.Equal(t, before, api.count(), path)
	}
	p.become(refuseAll)
	resp, answer := r.do(http.MethodGet, "/api/v1/namespaces/shop/pods", "")
	assert.Equal(t, http.StatusForbidden, resp.StatusCode)
	assert.Contains(t, statusIn(t, answer).Message, "PipeOps agent: ")
}
