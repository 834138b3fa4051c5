package client_test

import (
	"compress/gzip"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnertest"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// hostileAgent has an agent's certificate and answers each call as a test wants. It counts the
// bytes that its client took.
func hostileAgent(t *testing.T, answer http.HandlerFunc) (c *client.Client, taken *atomic.Int64) {
	t.Helper()
	agent := runnertest.Start(t, runnertest.NewBackend())
	cert := agent.CA.Issue(t, credentials.AgentURI(runnertest.TrustDomain, "a1"), runnertest.ServerName)
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	taken = &atomic.Int64{}
	srv := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answer(counted{w, taken}, r) }),
		TLSConfig: &tls.Config{
			MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAnyClientCert, Certificates: []tls.Certificate{cert},
		},
	}
	done := make(chan error, 1)
	go func() { done <- srv.ServeTLS(ln, "", "") }()
	t.Cleanup(func() {
		assert.NoError(t, srv.Close())
		require.ErrorIs(t, await.Receive(t, done, "the end of the server"), http.ErrServerClosed)
	})
	return agent.ClientWith(func(c *client.Config) {
		c.EdgeAddresses, c.Patience = []string{ln.Addr().String()}, time.Second
		c.Around = nil // the answers are not held against the API's document
	}), taken
}

type counted struct {
	http.ResponseWriter
	taken *atomic.Int64
}

// Write implements io.Writer.
func (c counted) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p)
	c.taken.Add(int64(n))
	return n, err
}

// endlessly writes the same text until its reader goes away.
func endlessly(w io.Writer, text string) {
	block := []byte(strings.Repeat(text, 1+64<<10/len(text)))
	for {
		if _, err := w.Write(block); err != nil {
			return
		}
	}
}

// Each kind of response that the client reads has a limit.
func TestClient_LimitsResponse(t *testing.T) {
	t.Parallel()
	key := runnerapi.Key{Namespace: "production", Name: "web"}
	get := func(ctx context.Context, c *client.Client) error {
		_, err := c.Apps().Get(ctx, key)
		return err
	}
	logs := func(ctx context.Context, c *client.Client) error {
		return c.Apps().Logs(ctx, key, runnerapi.LogOptions{}, func(runnerapi.LogLine) error { return nil })
	}
	for name, attack := range map[string]struct {
		answer http.HandlerFunc
		call   func(context.Context, *client.Client) error
		says   string
		mib    int64 // what the client may take, with what lies in the sockets' buffers
	}{
		"an answer without end": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"name":"`)
			endlessly(w, "x")
		}, get, "its answer has more than 8 MiB", 28},
		"an answer of few bytes that is large when unpacked": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			packed := gzip.NewWriter(w)
			endlessly(packed, " ")
		}, get, "its answer has more than 8 MiB", 1},
		"values without end": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"podLabels":[`+strings.Repeat("0,", 2<<20)+`0]}`)
		}, get, "makes no sense", 10},
		"values within values": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, strings.Repeat(`{"a":`, 1<<20))
		}, get, "makes no sense", 10},
		"an error without end": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusConflict)
			_, _ = io.WriteString(w, `{"detail":"`)
			endlessly(w, "x")
		}, get, "", 20},
		"a line of a log without end": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", runnerapi.NDJSON)
			_, _ = io.WriteString(w, `{"line":"`)
			endlessly(w, "x")
		}, logs, "a line of the log has more than", 20},
		"a header of a mebibyte": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Large", strings.Repeat("x", 1<<20))
			_, _ = io.WriteString(w, "{}")
		}, func(ctx context.Context, c *client.Client) error {
			return c.Apps().Delete(ctx, key, runnerapi.WriteOptions{})
		}, "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			c, taken := hostileAgent(t, attack.answer)
			err := attack.call(ctxFor(t), client.WithAnswersUpTo(c, 8<<20))
			require.Error(t, err)
			assert.Contains(t, err.Error(), attack.says)
			assert.Less(t, len(err.Error()), 4<<10, "nor is the error's text without end")
			assert.Less(t, taken.Load(), attack.mib<<20)
		})
	}
}
