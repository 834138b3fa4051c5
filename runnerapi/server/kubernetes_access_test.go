package server_test

import (
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
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

// When the policy ends the session, or the agent stops, kubectl shows the message.
func TestKubernetesAPI_ExecEndsWithStatus(t *testing.T) {
	agent, _, p, _ := kubernetes(t)
	for _, c := range []struct {
		says string
		end  func()
	}{
		{`rule "none" does not allow kubernetes-api`, func() { p.become(refuseAll) }},
		{"the agent is shutting down", agent.Stop},
	} {
		p.become(func(runnerapi.Intent) error { return nil })
		conn, resp := upgraded(t, agent, execPath, "websocket\r\nSec-WebSocket-Protocol: v5.channel.k8s.io")
		require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
		_, err := io.WriteString(conn, "\x82\x05\x01ping") // the fake sends it back
		require.NoError(t, err)
		assert.Equal(t, "\x01ping", string(frame(t, conn, 0x82)))
		var ending sync.WaitGroup
		ending.Go(c.end) // an agent that stops waits for the session
		payload := frame(t, conn, 0x82)
		require.Equal(t, byte(3), payload[0])
		assert.Contains(t, statusIn(t, payload[1:]).Message, c.says)
		farewell := frame(t, conn, 0x88)
		assert.EqualValues(t, 1000, binary.BigEndian.Uint16(farewell))
		assert.Contains(t, string(farewell[2:]), "PipeOps agent: ")
		_, err = conn.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
		ending.Wait()
	}
}

// frame reads one frame of a WebSocket, of that kind.
func frame(t *testing.T, conn net.Conn, kind byte) []byte {
	t.Helper()
	head := make([]byte, 2, 4)
	_, err := io.ReadFull(conn, head)
	require.NoError(t, err)
	require.Equal(t, kind, head[0])
	length := int(head[1])
	if length == 126 {
		_, err = io.ReadFull(conn, head[2:4])
		require.NoError(t, err)
		length = int(binary.BigEndian.Uint16(head[2:4]))
	}
	payload := make([]byte, length)
	_, err = io.ReadFull(conn, payload)
	require.NoError(t, err)
	return payload
}

// kubectl sends commands in the query, over HTTP/2 and in a WebSocket's request.
func TestKubernetesAPI_PassesLongHeaders(t *testing.T) {
	agent, api, _, _ := kubernetes(t)
	long := strings.Repeat("a", 64<<10)
	resp, _ := newRaw(t, agent).do(http.MethodGet, "/v1/kubernetes/api/v1/namespaces/shop/pods", "", "Kubectl-Command", long)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	assert.Equal(t, long, api.last().Header.Get("Kubectl-Command"))
	_, resp = upgraded(t, agent, execPath+"&command="+long, "websocket")
	require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
	assert.Equal(t, []string{"sh", "secret-mark", long}, api.last().URL.Query()["command"])
}

// endlessAPI is an API server in memory that sends until it has to wait.
type endlessAPI struct {
	nowhere
	sent chan int
}

// APIServer implements backend.KubernetesAPI.
func (a endlessAPI) APIServer() (*url.URL, http.RoundTripper, error) {
	return &url.URL{Scheme: "http", Host: "memory"}, a, nil
}

// size is what a log has.
const size = 16 << 20

// RoundTrip implements http.RoundTripper.
func (a endlessAPI) RoundTrip(r *http.Request) (*http.Response, error) {
	out, in := io.Pipe()
	go func() {
		n, _ := io.Copy(in, io.LimitReader(zeros{}, size))
		_ = in.Close()
		a.sent <- int(n)
	}()
	return &http.Response{StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: out, ContentLength: -1, Request: r}, nil
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// A person may be away for minutes, and gets everything then. What they have not read, the API
// server has not sent.
func TestKubernetesAPI_WaitsForSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, pipes := endlessAPI{sent: make(chan int, 1)}, memnet.New()
		agent := runnertest.New(t, runnertest.NewBackend())
		agent.Policy, agent.Kubernetes = newAsked(func(runnerapi.Intent) error { return nil }), api
		agent.StartOn(pipes)
		r := newRaw(t, agent)
		r.http.Transport.(*http.Transport).DialContext = pipes.Dial
		for _, path := range []string{"log", "log?follow=true"} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+agent.Address+"/v1/kubernetes/api/v1/namespaces/shop/pods/web/"+path, nil)
			require.NoError(t, err)
			resp, err := r.http.Do(req)
			require.NoError(t, err)
			began := time.Now()
			select {
			case n := <-api.sent:
				t.Fatalf("it ended after %s with %d bytes sent", time.Since(began), n)
			case <-time.After(6 * time.Minute): // the certificates of the test last 15
			}
			n, err := io.Copy(io.Discard, resp.Body)
			require.NoError(t, err)
			assert.EqualValues(t, size, n)
			assert.Equal(t, size, <-api.sent)
			require.NoError(t, resp.Body.Close())
		}
	})
}

// The watch ends with a status before its connection is closed, which takes no more calls.
func TestRevokeRunner_EndsWatchWithStatus(t *testing.T) {
	h := openHouse(t)
	h.Stop()
	h.Policy, h.Kubernetes = newAsked(func(runnerapi.Intent) error { return nil }), silentAPI{}
	h.Start()
	r := newRaw(t, h.Agent)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+h.Address+"/v1/kubernetes/api/v1/namespaces/shop/pods?watch=true", nil)
	require.NoError(t, err)
	resp, err := r.http.Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	cert, err := x509.ParseCertificate(r.http.Transport.(*http.Transport).TLSClientConfig.Certificates[0].Certificate[0])
	require.NoError(t, err)
	h.change(func() { h.revoked = cert.SerialNumber.Text(16) })
	var event metav1.WatchEvent
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&event))
	status := statusIn(t, event.Object.Raw)
	assert.Contains(t, status.Message, "this Runner may not use the agent any more")
	assert.EqualValues(t, transport.RefusedRevoked, status.Details.Causes[0].Type)
	req, err = http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+h.Address+"/v1/cluster", nil)
	require.NoError(t, err)
	_, err = r.http.Do(req)
	require.Error(t, err)
	await.Until(t, "the connection is closed", func() bool {
		_, err := resp.Body.Read(make([]byte, 1))
		return err != nil
	})
}

// The policy is asked about each of these as a request into the agent's namespace.
func TestKubernetesAPI_DetectsAgentNamespace(t *testing.T) {
	agent, _, p, _ := kubernetes(t)
	p.become(refuseAll)
	r := newRaw(t, agent)
	for path, into := range map[string]bool{
		"/api/v1/namespaces/pipeops/secrets":                                       true,
		"/api/v1/namespaces/pipeops":                                               true,
		"/api/v1/watch/namespaces/pipeops/secrets":                                 true,
		"/api/v1/secrets?fieldSelector=metadata.namespace%3Dpipeops":               true,
		"/api/v1/secrets?fieldSelector=type%3Da%2Cmetadata.namespace%3D%3Dpipeops": true,
		"/api/v1/secrets?watch=1&fieldSelector=metadata.namespace%3Dpipeops":       true,
		"/api/v1/watch/secrets?fieldSelector=metadata.namespace%3Dpipeops":         true,
		"/apis/apps/v1/deployments?fieldSelector=metadata.namespace%3Dpipeops":     true,
		"/api/v1/nodes/a/proxy/containerLogs/pipeops/agent/agent":                  true,
		"/api/v1/nodes/a:10250/proxy":                                              true,
		"/api/v1/proxy/nodes/a/pods":                                               true,
		"/api/v1/nodes":                                                            false,
		"/api/v1/namespaces/shop/pods?fieldSelector=metadata.namespace%3Dpipeops":  false,
		"/api/v1/secrets?fieldSelector=metadata.namespace%21%3Dpipeops":            false,
		"/api/v1/namespaces/shop/services/nodes/proxy":                             false,
	} {
		r.do(http.MethodGet, "/v1/kubernetes"+path, "")
		asked := p.all()
		require.NotEmpty(t, asked)
		assert.Equal(t, into, asked[len(asked)-1].Kubernetes.InAgentNamespace, path)
	}
}

// The API server applies the field selector to lists and watches.
func TestKubernetesAPI_HidesAgentNamespace(t *testing.T) {
	agent, api, _, _ := kubernetes(t)
	r := newRaw(t, agent)
	const hidden = "metadata.namespace!=pipeops"
	for path, want := range map[string]string{
		"/api/v1/secrets":                                    hidden,
		"/api/v1/secrets?limit=5&continue=a":                 hidden,
		"/apis/metrics.k8s.io/v1beta1/pods":                  hidden,
		"/api/v1/pods?fieldSelector=status.phase%3DRunning":  "status.phase=Running," + hidden,
		"/api/v1/watch/pods":                                 hidden,
		"/apis/example.com/v1/watch/widgets/a":               "metadata.name=a," + hidden,
		"/api/v1/namespaces/shop/secrets":                    "",
		"/api/v1/nodes":                                      "",
		"/api/v1/namespaces":                                 "",
		"/api/v1/namespaces?fieldSelector=metadata.name%3Da": "metadata.name=a",
	} {
		resp, answer := r.do(http.MethodGet, "/v1/kubernetes"+path, "")
		require.Equal(t, http.StatusOK, resp.StatusCode, "%s: %s", path, answer)
		sent := api.last().URL.Query()
		assert.Equal(t, want, sent.Get("fieldSelector"), path)
		before, err := url.Parse(path)
		require.NoError(t, err)
		for name := range before.Query() {
			if name != "fieldSelector" {
				assert.Equal(t, before.Query()[name], sent[name], "the rest of %s stays", path)
			}
		}
	}
	for _, twice := range []string{"fieldSelector=a%3Db&fieldSelector=metadata.namespace%3Dpipeops", "fieldSelector=a"} {
		resp, _ := r.do(http.MethodGet, "/v1/kubernetes/api/v1/secrets?"+twice, "")
		assert.Equal(t, http.StatusBadRequest, resp.StatusCode, twice)
	}
}

// Impersonation is refused, or passed on as a whole.
func TestKubernetesAPI_KeepsImpersonation(t *testing.T) {
	agent, api, p, log := kubernetes(t)
	r := newRaw(t, agent)
	const path = "/v1/kubernetes/api/v1/namespaces/shop/pods"
	for _, headers := range [][]string{
		{"Impersonate-Uid", "0"}, {"impersonate-extra-scopes", "all"}, {"Impersonate-Anything", "x"},
		{"Impersonate-Group", "system:masters"}, {"Impersonate-User", ""}, {"Impersonate-User", "alice", "Impersonate-Uid", "0"},
	} {
		resp, answer := r.do(http.MethodGet, path, "", headers...)
		assert.Equal(t, http.StatusForbidden, resp.StatusCode, headers)
		assert.Contains(t, statusIn(t, answer).Message, "PipeOps agent: ", headers)
	}
	assert.Zero(t, api.count())
	assert.Equal(t, runnerapi.CodePolicyDenied, log.all()[0].Code)

	resp, answer := r.do(http.MethodGet, path, "", "Impersonate-User", "alice", "Impersonate-Group", "web")
	require.Equal(t, http.StatusOK, resp.StatusCode, string(answer))
	assert.Equal(t, []string{"alice"}, api.last().Header["Impersonate-User"])
	assert.Equal(t, []string{"web"}, api.last().Header["Impersonate-Group"])

	p.become(refuseAll)
	resp, _ = r.do(http.MethodGet, path, "", "Impersonate-User", "alice")
	assert.Equal(t, http.StatusForbidden, resp.StatusCode)
	asked := p.all()
	assert.Equal(t, "alice", asked[len(asked)-1].Kubernetes.Impersonate.User, "the policy is asked about it")
}
