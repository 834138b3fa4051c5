package attackers

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
)

// callTimeout bounds each call of an attacker; maxHeard what is read of an answer.
const (
	callTimeout = time.Minute
	maxHeard    = 16 << 20
)

// caller makes raw calls to the agent's Runner API, through the edge and the tunnel.
type caller struct {
	host   string // AGENT_ID.AGENTS_DOMAIN
	edge   string
	tls    *tls.Config
	client *http.Client // of HTTP/2
	http1  *http.Client // for headers that HTTP/2 has not
	always http.Header  // of every call
}

// newCaller is a Runner with its own program.
func newCaller(t *testing.T, runner string) *caller {
	t.Helper()
	creds, err := credentials.Load(sys.RunnerCredentials(runner))
	require.NoError(t, err)
	cert, err := creds.TLSCertificate()
	require.NoError(t, err)
	roots, err := creds.Roots()
	require.NoError(t, err)
	c := &caller{host: agentID(t, runner) + "." + creds.AgentsDomain, edge: creds.Edge}
	c.tls = &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots, Certificates: []tls.Certificate{cert}, ServerName: c.host}
	c.client, c.http1 = c.over(t, "h2"), c.over(t, "http/1.1")
	return c
}

func (c *caller) over(t *testing.T, protocol string) *http.Client {
	t.Helper()
	config := c.tls.Clone()
	config.NextProtos = []string{protocol}
	transport := &http.Transport{
		ForceAttemptHTTP2: protocol == "h2", TLSClientConfig: config,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, c.edge)
		},
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: callTimeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func agentID(t *testing.T, runner string) string {
	t.Helper()
	out, err := sys.Runner(t.Context(), runner, "agents", "-o", "json")
	require.NoError(t, err)
	var agents []struct{ ID, Name string }
	require.NoError(t, json.Unmarshal([]byte(out), &agents), out)
	for _, a := range agents {
		if a.Name == agentName {
			return a.ID
		}
	}
	require.Fail(t, "no agent "+agentName, out)
	return ""
}

// answer is what a call got.
type answer struct {
	status int
	code   string // of a problem; a reason of Kubernetes
	body   []byte
	err    error
}

func (a answer) String() string {
	return fmt.Sprintf("%d %s %v %.600s", a.status, a.code, a.err, a.body)
}

// call makes a call whose body is JSON as it is given, or text.
func (c *caller) call(ctx context.Context, method, path string, body any, header http.Header) answer {
	var in io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		in = strings.NewReader(b)
	case io.Reader:
		in = b
	default:
		text, err := json.Marshal(b)
		if err != nil {
			return answer{err: err}
		}
		in = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, "https://"+c.host, in)
	if err != nil {
		return answer{err: err}
	}
	path, req.URL.RawQuery, _ = strings.Cut(path, "?")
	req.URL.Opaque = "//" + c.host + path // as it is written
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	maps.Copy(req.Header, c.always)
	maps.Copy(req.Header, header)
	client := c.client
	if header["Connection"] != nil {
		client = c.http1
	}
	resp, err := client.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxHeard))
	var problem struct{ Code, Reason any }
	_ = json.Unmarshal(text, &problem) // not every answer is one
	a := answer{status: resp.StatusCode, body: fmt.Appendf(text, "\n%v", resp.Header), err: err}
	if code, ok := problem.Code.(string); ok {
		a.code = code
	} else if reason, ok := problem.Reason.(string); ok {
		a.code = reason
	}
	return a
}
