package server_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnertest"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/transport"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/hostile"
)

// impatience is how long a test waits for the end of the server's patience of ten seconds.
const impatience = 2 * time.Minute

// attackOn is a Runner that is let in and means ill.
func attackOn(t *testing.T, agent *runnertest.Agent, runner string) hostile.Target {
	t.Helper()
	cert := agent.CA.Issue(t, credentials.RunnerURI(runnertest.TrustDomain, runner))
	return hostile.Target{Addr: agent.Address, TLS: &tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: agent.CA.Pool, ServerName: runnertest.ServerName, Certificates: []tls.Certificate{cert},
	}}
}

// limitedAgent is a fake agent with limits.
func limitedAgent(t *testing.T, l transport.Limits) *runnertest.Agent {
	t.Helper()
	agent := runnertest.New(t, runnertest.NewBackend())
	agent.Limits = l
	agent.Start()
	return agent
}

// Attacks by strangers, and by a Runner over HTTP/1.1. The idle timeout ends idle HTTP/2
// connections, and is too long for a test.
func TestRunnerAPI_EndsAttacks(t *testing.T) {
	t.Parallel()
	agent := runnertest.Start(t, runnertest.NewBackend())
	target := attackOn(t, agent, "evil")
	attacks := append(hostile.TLS(runnertest.ServerName), hostile.HTTP1("/v1/cluster")...)
	attacks = append(attacks, hostile.HTTP2("/v1/cluster", 600)...)
	attacks = slices.DeleteFunc(attacks, func(a hostile.Attack) bool {
		// Small answers fit into what the system keeps, whether somebody reads them or not.
		return a.ALPN == "h2" && a.Waits || a.Name == "answers that nobody reads"
	})
	left, err := target.LeftOpen(t.Context(), attacks, impatience, func([]byte) bool { return true })
	require.NoError(t, err)
	assert.Empty(t, left)
	_, err = agent.Client().Cluster().Get(ctxFor(t))
	require.NoError(t, err)
}

// Another Runner is served during each flood.
func TestRunnerAPI_ServesDuringHTTP2Floods(t *testing.T) {
	agent := runnertest.Start(t, runnertest.NewBackend())
	target, c := attackOn(t, agent, "evil"), agent.Client()
	for _, a := range hostile.HTTP2("/v1/cluster", 5000) {
		t.Run(a.Name, func(t *testing.T) {
			conn, err := target.Send(t.Context(), a)
			require.NoError(t, err)
			defer hostile.Reset(conn)
			for range 5 {
				_, err = c.Cluster().Get(ctxFor(t))
				require.NoError(t, err)
			}
		})
	}
}

// A reset stream counts until its handler has ended, so a Runner that resets has no more
// handlers than streams.
func TestRunnerAPI_LimitsRapidReset(t *testing.T) {
	t.Parallel()
	b := runnertest.NewBackend()
	entered := make(chan struct{}, 10_000)
	leave := make(chan struct{})
	b.Intercept = func(context.Context, runnertest.Call) error {
		entered <- struct{}{}
		<-leave // like a handler that does not notice that its caller is gone
		return nil
	}
	agent := runnertest.Start(t, b)
	i := slices.IndexFunc(hostile.HTTP2("", 1), func(a hostile.Attack) bool { return a.Name == "rapid reset" })
	conn, err := attackOn(t, agent, "evil").Send(t.Context(), hostile.HTTP2("/v1/cluster", 5000)[i])
	require.NoError(t, err)
	defer hostile.Reset(conn)
	_, err = hostile.Ended(conn, impatience)
	require.NoError(t, err, "the server ends a connection that continues resetting")
	close(leave)
	assert.LessOrEqual(t, len(entered), 250)
}

// These Runners send a byte at a time.
func TestRunnerAPI_EndsSlowRequests(t *testing.T) {
	t.Parallel()
	target := attackOn(t, runnertest.Start(t, runnertest.NewBackend()), "evil")
	for _, slow := range hostile.Slow("/v1/cluster") {
		if slow.Name == "body" || slow.Name == "chunks" {
			continue // bodies have their own timeout, and a Runner has its share of them
		}
		t.Run(slow.Name, func(t *testing.T) {
			t.Parallel()
			ended, err := slow.Ended(t.Context(), target, 50*time.Millisecond, impatience)
			require.NoError(t, err)
			assert.True(t, ended)
		})
	}
}

// A Runner whose calls all hang gets no more; others do. The audit log has no record of calls
// over the limit.
func TestRunnerAPI_LimitsCalls(t *testing.T) {
	b := runnertest.NewBackend()
	entered, leave := make(chan struct{}, 10), make(chan struct{})
	b.Intercept = func(_ context.Context, c runnertest.Call) error {
		if c.Verb == "Apps.List" {
			entered <- struct{}{}
			<-leave
		}
		return nil
	}
	agent, log := runnertest.New(t, b), &auditor{}
	agent.Limits, agent.Audit = transport.Limits{CallsPerRunner: 2}, log
	agent.Start()
	r := newRaw(t, agent)
	done := make(chan int, 2)
	for range 2 {
		go func() {
			resp, _ := r.do(http.MethodGet, "/v1/apps", "")
			done <- resp.StatusCode
		}()
		await.Receive(t, entered, "a call that hangs")
	}
	resp, body := r.do(http.MethodPut, appPath, `{"image":"a"}`)
	assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
	assert.Equal(t, "1", resp.Header.Get("Retry-After"))
	assert.Contains(t, string(body), `"too_many_requests"`)
	other, err := dialRunner(t, agent, "other").Cluster().Get(ctxFor(t))
	require.NoError(t, err)
	assert.NotEmpty(t, other)
	close(leave)
	assert.Equal(t, []int{200, 200}, []int{await.Receive(t, done, "an answer"), await.Receive(t, done, "the other answer")})
	resp, _ = r.do(http.MethodPut, appPath, `{"image":"a"}`)
	assert.Less(t, resp.StatusCode, 300)
	assert.Len(t, log.take(t, 1), 1)
}

// dialRunner is another Runner's client.
func dialRunner(t *testing.T, agent *runnertest.Agent, name string) *client.Client {
	t.Helper()
	return agent.ClientAs(agent.CA.Issue(t, credentials.RunnerURI(runnertest.TrustDomain, name)))
}

// Slow large bodies take no more than the Runner's share of the agent's memory; small bodies do
// not count.
func TestRunnerAPI_LimitsBodies(t *testing.T) {
	agent := limitedAgent(t, transport.Limits{Bodies: 4, BodiesPerRunner: 2})
	target := attackOn(t, agent, runnertest.RunnerName)
	for range 2 {
		conn, err := target.Send(t.Context(), hostile.Attack{Secure: true, ALPN: "http/1.1", Do: func(c net.Conn) {
			_, _ = io.WriteString(c, "PUT "+appPath+" HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: 1000000\r\n\r\n")
		}})
		require.NoError(t, err)
		defer hostile.Reset(conn)
		line, err := bufio.NewReader(conn).ReadString('\n')
		require.NoError(t, err)
		require.Contains(t, line, "100 Continue", "its body is being read")
	}
	r := newRaw(t, agent)
	large := `{"image":"a","args":["` + strings.Repeat("x", 100<<10) + `"]}`
	resp, _ := r.do(http.MethodPut, appPath, large)
	assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
	resp, _ = r.do(http.MethodPut, appPath, `{"image":"a"}`)
	assert.Less(t, resp.StatusCode, 300)
	_, err := dialRunner(t, agent, "other").Apps().Deploy(ctxFor(t), web, runnerapi.AppSpec{Image: "a", Args: []string{strings.Repeat("x", 100<<10)}}, runnerapi.WriteOptions{})
	require.NoError(t, err)
}

// Connections that never send a request push out each other only.
func TestRunnerAPI_LimitsConnections(t *testing.T) {
	agent := limitedAgent(t, transport.Limits{ConnectionsPerRunner: 2, Handshakes: 3})
	target := attackOn(t, agent, "evil")
	get := hostile.Attack{Secure: true, ALPN: "http/1.1", Do: func(c net.Conn) {
		_, _ = io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
	}}
	for i := range 4 {
		conn, err := target.Send(t.Context(), get)
		require.NoError(t, err)
		defer hostile.Reset(conn)
		_, err = bufio.NewReader(conn).ReadString('\n')
		assert.Equal(t, i < 2, err == nil, "connection %d: %v", i, err)
	}
	first, err := target.Send(t.Context(), hostile.Attack{Do: func(net.Conn) {}})
	require.NoError(t, err)
	var last net.Conn
	for range 3 {
		last, err = target.Send(t.Context(), hostile.Attack{Do: func(net.Conn) {}})
		require.NoError(t, err)
		defer hostile.Reset(last)
	}
	_, err = hostile.Ended(first, impatience)
	require.NoError(t, err)
	require.NoError(t, tls.Client(last, target.TLS).HandshakeContext(ctxFor(t)), "the last one has not been timed out like the first")
	_, err = dialRunner(t, agent, "other").Cluster().Get(ctxFor(t))
	require.NoError(t, err)
}

// Writes the path of a forbidden call in every other way there is. The policy allows one
// namespace; whatever reaches the backend must be in it, and must be what the policy was asked
// about and the audit log has.
func TestRunnerAPI_RefusesAmbiguousPath(t *testing.T) {
	t.Parallel()
	p := newAsked(func(i runnerapi.Intent) error {
		if i.Namespace == "open" {
			return nil
		}
		return refuseAll(i)
	})
	agent, log := watched(t, p)
	target := attackOn(t, agent, "evil")
	const open, closed = "/v1/namespaces/open", "/v1/namespaces/closed"
	for _, path := range []string{
		"//v1/namespaces/closed/apps/web", "/v1//namespaces/closed/apps/web", closed + "/apps//web", closed + "/apps/web/", closed + "//apps/web",
		open + "/../closed/apps/web", open + "/%2e%2e/closed/apps/web", open + "%2f..%2fclosed/apps/web", open + "/apps/..%2f..%2fclosed%2fapps%2fweb",
		"/v1/namespaces/open%2fapps%2fx%2f..%2f..%2f..%2fclosed/apps/web", "/v1/namespaces/open%00closed/apps/web", "/v1/namespaces/closed%00/apps/web",
		"/v1/namespaces/closed%2e/apps/web", "/v1/namespaces/closed./apps/web", "/v1/namespaces/CLOSED/apps/web", "/V1/namespaces/closed/apps/web",
		"/v1/namespaces/%63losed/apps/web", "/v1/namespaces/%2563losed/apps/web", "/v1/namespaces/clos%65d/apps/web", "/v1/namespaces/closed;open/apps/web",
		"/v1/namespaces/closed%20/apps/web", "/v1/namespaces/%c0%ae/apps/web", "/v1/namespaces/cl\u043esed/apps/web", "/v1/namespaces/closed\\..\\open/apps/web",
		"https://elsewhere" + closed + "/apps/web", "http://x" + closed + "/apps/web", "https://x/" + open + "/../closed/apps/web",
		closed + "/apps/web?namespace=open", closed + "/apps/web?name=x&namespace=open&dryRun=true", closed + "/apps/web#" + open,
		"/v1/namespaces/" + strings.Repeat("a", 30_000) + "/apps/web", "/healthz/.." + closed + "/apps/web", "/healthz%2f.." + closed + "/apps/web", "/openapi.json/.." + closed + "/apps/web", "*",
	} {
		for _, method := range []string{"PUT", "GET", "DELETE", "put", "HEAD", "PATCH", "OPTIONS", "TRACE", "CONNECT"} {
			before := len(agent.Backend.Calls())
			status := speak(t, target, method+" "+path+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nX-HTTP-Method-Override: GET\r\nX-Original-URL: /healthz\r\nX-Forwarded-Prefix: "+open+"\r\nContent-Length: 13\r\n\r\n{\"image\":\"a\"}")
			for _, call := range agent.Backend.Calls()[before:] {
				assert.Equal(t, "open", call.Key.Namespace, "%s %s came to %s", method, path, call.Verb)
			}
			assert.True(t, status >= 400 && status < 500, "%s %s: %d", method, path, status)
		}
	}
	log.mu.Lock()
	defer log.mu.Unlock()
	for _, r := range log.records {
		assert.NotEqual(t, runnerapi.AuditDone, r.Outcome, "%+v", r)
	}
	for _, call := range agent.Backend.Calls() {
		assert.Fail(t, "something was carried out", "%+v", call)
	}
}

// In HTTP/2 a path is a field and not part of a line.
func TestRunnerAPI_RefusesMalformedHTTP2(t *testing.T) {
	agent, _ := watched(t, newAsked(refuseAll))
	target := attackOn(t, agent, "evil")
	for name, fields := range map[string][]string{
		"no slash":               {":method", "GET", ":scheme", "https", ":authority", "x", ":path", "v1/cluster"},
		"a NUL":                  {":method", "GET", ":scheme", "https", ":authority", "x", ":path", "/v1/cluster\x00"},
		"a line":                 {":method", "GET", ":scheme", "https", ":authority", "x", ":path", "/healthz HTTP/1.1\r\nX: /v1/cluster"},
		"empty":                  {":method", "GET", ":scheme", "https", ":authority", "x", ":path", ""},
		"two paths":              {":method", "GET", ":scheme", "https", ":authority", "x", ":path", "/healthz", ":path", "/v1/cluster"},
		"two methods":            {":method", "GET", ":method", "DELETE", ":scheme", "https", ":authority", "x", ":path", appPath},
		"a method with a space":  {":method", "GET /v1/cluster", ":scheme", "https", ":authority", "x", ":path", "/healthz"},
		"a header of connection": {":method", "PUT", ":scheme", "https", ":authority", "x", ":path", appPath, "connection", "transfer-encoding", "transfer-encoding", "chunked"},
		"an upgrade":             {":method", "GET", ":scheme", "https", ":authority", "x", ":path", "/v1/cluster", "upgrade", "h2c"},
		"upper case":             {":method", "GET", ":scheme", "https", ":authority", "x", ":path", "/v1/cluster", "X-Upper", "a"},
		"a line in a value":      {":method", "GET", ":scheme", "https", ":authority", "x", ":path", "/v1/cluster", "x", "a\r\nhost: b"},
		"two lengths":            {":method", "PUT", ":scheme", "https", ":authority", "x", ":path", appPath, "content-length", "1", "content-length", "2"},
		"an extended CONNECT":    {":method", "CONNECT", ":protocol", "websocket", ":scheme", "https", ":authority", "x", ":path", appPath},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := target.Send(t.Context(), hostile.Attack{Secure: true, ALPN: "h2", Do: func(c net.Conn) {
				_, _ = io.WriteString(c, http2.ClientPreface)
				f := http2.NewFramer(c, nil)
				_ = f.WriteSettings()
				_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: hostile.Fields(fields...), EndHeaders: true, EndStream: true})
			}})
			require.NoError(t, err)
			defer hostile.Reset(conn)
			awaitStreamEnd(t, conn)
			assert.Empty(t, agent.Backend.Calls())
		})
	}
}

// awaitStreamEnd reads until stream 1 was reset or answered, or all was ended.
func awaitStreamEnd(t *testing.T, conn net.Conn) {
	t.Helper()
	f := http2.NewFramer(io.Discard, conn)
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return
		}
		switch frame := frame.(type) {
		case *http2.GoAwayFrame, *http2.RSTStreamFrame:
			return
		case *http2.HeadersFrame:
			if frame.StreamEnded() {
				return
			}
		case *http2.DataFrame:
			if frame.StreamEnded() {
				return
			}
		}
	}
}

// speak says something over HTTP/1.1 and answers the first status that came back.
func speak(t *testing.T, target hostile.Target, text string) (status int) {
	t.Helper()
	conn, err := target.Send(t.Context(), hostile.Attack{Secure: true, ALPN: "http/1.1", Do: func(c net.Conn) { _, _ = io.WriteString(c, text) }})
	require.NoError(t, err)
	defer hostile.Reset(conn)
	said, err := hostile.Ended(conn, impatience)
	require.NoError(t, err)
	_, err = fmt.Sscanf(string(said), "HTTP/1.1 %d", &status)
	require.NoError(t, err, "%.60q: %q", text, said)
	return status
}

// Sends requests whose ends are in dispute. Nothing between the Runner and the agent reads HTTP;
// the policy must all the same be asked about each request that the agent reads.
func TestRunnerAPI_RefusesSmuggling(t *testing.T) {
	p := newAsked(refuseAll)
	agent, _ := watched(t, p)
	target := attackOn(t, agent, "evil")
	const inner = "DELETE " + appPath + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
	head := "PUT " + appPath + " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
	for name, text := range map[string]string{
		"CL.TE":                 head + fmt.Sprintf("Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n%s", 5+len(inner), inner),
		"TE.CL":                 head + fmt.Sprintf("Connection: close\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(inner), inner),
		"TE.TE":                 head + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + inner,
		"a hidden encoding":     head + "Transfer-Encoding: \x0bchunked\r\nContent-Length: 2\r\n\r\n{}" + inner,
		"a folded header":       head + "X: a\r\n Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n{}" + inner,
		"extensions of chunks":  head + "Transfer-Encoding: chunked\r\n\r\n2;" + strings.Repeat("a=b;", 4<<10) + "\r\n{}\r\n0\r\n\r\n" + inner,
		"a line in a chunk":     head + "Transfer-Encoding: chunked\r\n\r\n2;\n{}\r\n0\r\n\r\n" + inner,
		"a size past its end":   head + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff1\r\n{}\r\n0\r\n\r\n" + inner,
		"a length that is long": head + "Content-Length: 0000000000000000000002\r\n\r\n{}" + inner,
		"bare line feeds":       strings.ReplaceAll(head, "\r\n", "\n") + "Content-Length: 2\n\n{}" + inner,
		"h2c":                   "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n" + http2.ClientPreface + inner,
		"a websocket":           "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n" + inner,
		"expect":                head + "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n" + inner,
	} {
		t.Run(name, func(t *testing.T) {
			before := len(p.all())
			conn, err := target.Send(t.Context(), hostile.Attack{Secure: true, ALPN: "http/1.1", Do: func(c net.Conn) { _, _ = io.WriteString(c, text) }})
			require.NoError(t, err)
			defer hostile.Reset(conn)
			said, err := hostile.Ended(conn, impatience)
			require.NoError(t, err)
			assert.NotContains(t, string(said), " 101 ")
			answers := strings.Count(string(said), `"policy_denied"`)
			assert.Equal(t, answers, len(p.all())-before, "each request that was read was asked about and refused: %s", said)
			assert.Empty(t, agent.Backend.Calls())
		})
	}
}

// The connection stays: the caller answers pings and opens no window.
func TestLogs_EndWithoutReader(t *testing.T) {
	t.Parallel()
	agent := limitedAgent(t, transport.Limits{Stall: time.Second})
	_, err := agent.Client().Apps().Deploy(ctxFor(t), web, runnerapi.AppSpec{Image: "a"}, runnerapi.WriteOptions{})
	require.NoError(t, err)
	flood := make([]runnerapi.LogLine, 20_000)
	for i := range flood {
		flood[i] = runnerapi.LogLine{Pod: "web-1", Line: strings.Repeat("x", 1000)}
	}
	agent.Backend.Log(flood...)
	conn, err := attackOn(t, agent, "evil").Send(t.Context(), hostile.Attack{Secure: true, ALPN: "h2", Do: func(c net.Conn) {
		_, _ = io.WriteString(c, http2.ClientPreface)
		f := http2.NewFramer(c, nil)
		_ = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true, EndStream: true,
			BlockFragment: hostile.Fields(":method", "GET", ":scheme", "https", ":authority", "x", ":path", appPath+"/logs")})
	}})
	require.NoError(t, err)
	defer hostile.Reset(conn)
	require.NoError(t, conn.SetDeadline(time.Now().Add(2*time.Minute)))
	f := http2.NewFramer(conn, conn)
	for {
		frame, err := f.ReadFrame()
		require.NoError(t, err)
		switch frame := frame.(type) {
		case *http2.RSTStreamFrame:
			return
		case *http2.PingFrame:
			if !frame.IsAck() {
				require.NoError(t, f.WritePing(true, frame.Data))
			}
		}
	}
}
