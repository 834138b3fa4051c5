package unsent_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/pipeops/pipeops-vm-agent/internal/unsent"
	"github.com/pipeops/pipeops-vm-agent/internal/wrapconn"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// mortal is a connection to which nothing can be written once it is dead.
type mortal struct {
	net.Conn
	dead *atomic.Bool
}

func (m mortal) Write(p []byte) (int, error) {
	if m.dead.Load() {
		return 0, errors.New("dead")
	}
	return m.Conn.Write(p)
}

// A request is sent again exactly if nothing of it was sent, whatever its method and body.
func TestTransport_Repeats(t *testing.T) {
	for name, c := range map[string]struct {
		body   string
		length int64
		cut    bool // the server ends the connection when it has the request
	}{
		"without body": {"", 0, false},
		"short body":   {"text", 4, false},
		"chunked body": {"text", -1, false},
		"long body":    {strings.Repeat("x", 1<<20), 1 << 20, false},
		"sent":         {"text", 4, true},
	} {
		t.Run(name, func(t *testing.T) {
			var received atomic.Int64
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				text, _ := io.ReadAll(r.Body)
				if r.URL.Path == "/first" {
					return
				}
				received.Add(1)
				if c.cut {
					panic(http.ErrAbortHandler)
				}
				_, _ = w.Write(text)
			}))
			t.Cleanup(srv.Close)
			var newest *atomic.Bool
			transport := unsent.New(&http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
				newest = new(atomic.Bool)
				return mortal{conn, newest}, err
			}})
			t.Cleanup(transport.CloseIdleConnections)
			send := func(path, body string, length int64) (string, error) {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+path, io.NopCloser(strings.NewReader(body)))
				require.NoError(t, err)
				if r.ContentLength = length; length == 0 {
					r.Body = nil
				}
				resp, err := transport.RoundTrip(r)
				if err != nil {
					return "", err
				}
				defer func() { _ = resp.Body.Close() }()
				text, err := io.ReadAll(resp.Body)
				return string(text), err
			}
			_, err := send("/first", "", 0)
			require.NoError(t, err)
			newest.Store(!c.cut)
			got, err := send("/", c.body, c.length)
			assert.Equal(t, int64(1), received.Load())
			if c.cut {
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, len(c.body), len(got))
		})
	}
}

// unnoticed is a connection whose end nobody has read yet.
type unnoticed struct {
	wrapconn.Conn
	over <-chan struct{}
}

func (u unnoticed) Read(p []byte) (int, error) {
	n, err := u.Conn.Read(p)
	if err != nil {
		<-u.over
	}
	return n, err
}

// A server that stops ends all of the connections that are kept to it, at once.
func TestTransport_ManyEnded(t *testing.T) {
	const kept = 10
	var all sync.WaitGroup
	all.Add(kept)
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			all.Done()
			all.Wait()
		}
	}))
	t.Cleanup(srv.Close)
	over := make(chan struct{})
	var conns sync.Map
	transport := unsent.New(&http.Transport{MaxIdleConnsPerHost: kept, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		conns.Store(conn, true)
		return unnoticed{wrapconn.Conn{Conn: conn}, over}, err
	}})
	t.Cleanup(transport.CloseIdleConnections)
	t.Cleanup(func() { close(over) })
	send := func(method string) error {
		r, err := http.NewRequestWithContext(t.Context(), method, srv.URL, io.NopCloser(strings.NewReader("text")))
		if err != nil {
			return err
		}
		resp, err := transport.RoundTrip(r)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	}
	var requests errgroup.Group
	for range kept {
		requests.Go(func() error { return send(http.MethodGet) })
	}
	require.NoError(t, requests.Wait())
	srv.CloseClientConnections()
	conns.Range(func(conn, _ any) bool {
		await.Until(t, "the end has come", func() bool { return wrapconn.Ended(conn.(net.Conn)) })
		return true
	})
	require.NoError(t, send(http.MethodPost))
}
