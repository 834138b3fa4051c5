package gateway_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/hostile"
)

// answer is a net/http answer that notes the deadline of its request.
type answer struct {
	*httptest.ResponseRecorder

	mu       sync.Mutex
	deadline time.Time
	atBegin  time.Time // the deadline when the answer began
	ended    bool
	late     bool // the deadline was set after the end
}

// serve has the gateway answer a request as net/http does.
func (w *world) serve(r *http.Request) *answer {
	a := &answer{ResponseRecorder: httptest.NewRecorder()}
	w.gateway.ServeHTTP(a, r)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = true
	return a
}

// SetReadDeadline is for http.ResponseController.
func (a *answer) SetReadDeadline(until time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.deadline = until
	a.late = a.late || a.ended
	return nil
}

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	a.mu.Lock()
	a.atBegin = a.deadline
	a.mu.Unlock()
	a.ResponseRecorder.WriteHeader(status)
}

func (a *answer) is(t *testing.T, check func()) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	check()
}

// ofVersion is a request of HTTP/1 or HTTP/2 as a server sees it.
func ofVersion(t *testing.T, major int, body io.Reader) *http.Request {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+host+"/", body)
	r.ProtoMajor = major
	return r
}

// TestBody_LateResponse lifts the deadline once the client has sent everything.
func TestBody_LateResponse(t *testing.T) {
	w := newWorld(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	for _, major := range []int{1, 2} {
		a := w.serve(ofVersion(t, major, strings.NewReader("text")))
		assert.Equal(t, http.StatusOK, a.Code)
		a.is(t, func() { assert.Zero(t, a.atBegin, major) })
	}
}

// TestBody_SilentStream lifts the deadline once the App has begun to respond, as for gRPC.
func TestBody_SilentStream(t *testing.T) {
	w := newWorld(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	body, send := io.Pipe()
	began := make(chan *answer, 1)
	go func() { began <- w.serve(ofVersion(t, 2, body)) }()
	_, err := io.WriteString(send, "text") // the gateway waits for more
	require.NoError(t, err)
	require.NoError(t, send.Close())
	a := <-began
	a.is(t, func() { assert.Zero(t, a.atBegin) })
}

// TestBody_NoUseAfterResponse has an App respond before it has read the body. net/http panics if
// its answer is used afterwards.
func TestBody_NoUseAfterResponse(t *testing.T) {
	w := newWorld(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	var all []*answer
	for range 200 {
		all = append(all, w.serve(ofVersion(t, 2, io.LimitReader(zeros{}, 1<<20))))
	}
	for _, a := range all {
		a.is(t, func() { assert.False(t, a.late) })
	}
}

// TestBody_UnreadEnds covers responses of the gateway itself, while the client continues to send
// byte by byte.
func TestBody_UnreadEnds(t *testing.T) {
	w := newWorld(t, nil, func(c *gateway.Config) { c.Patience.Progress = 100 * time.Millisecond })
	plain := hostile.Target{Addr: w.plain.String()}
	for _, to := range []string{host, "unknown.example.org"} {
		for _, target := range []hostile.Target{w.hostile("http/1.1"), plain} {
			conn, err := target.Send(t.Context(), hostile.Attack{Secure: target.TLS != nil, ALPN: "http/1.1", Do: func(c net.Conn) {
				_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: "+to+"\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
			}})
			require.NoError(t, err)
			assert.True(t, hostile.Drip(conn, "1\r\nx\r\n", 10*time.Millisecond, time.Minute), to)
			hostile.Reset(conn)
		}
	}
}

// stall sends a request whose body begins, and does not go on until there is an answer.
func (w *world) stall(c *http.Client, path string, header ...string) (resp *http.Response, text string, err error) {
	body, send := io.Pipe()
	defer func() { _ = send.Close() }()
	go func() { _, _ = io.WriteString(send, "text") }()
	resp, err = c.Do(request(w.t, http.MethodPost, "https://"+host+path, body, header...))
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	all, err := io.ReadAll(resp.Body)
	return resp, string(all), err
}

func TestBody_StallTimeout(t *testing.T) {
	w := newWorld(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }),
		func(c *gateway.Config) { c.Patience.Progress = time.Second })
	for name, client := range map[string]func() *http.Client{
		"HTTP/1": func() *http.Client { return w.client(false) }, "HTTP/2": func() *http.Client { return w.client(true) }, "HTTP/3": w.client3,
	} {
		await.Until(t, name, func() bool { // a connection of HTTP/3 may be idle for too long
			resp, text, err := w.stall(client(), "/")
			if name == "HTTP/3" && err != nil {
				return false
			}
			require.NoError(t, err, name)
			assert.Equal(t, http.StatusRequestTimeout, resp.StatusCode, name)
			assert.Contains(t, text, "request_timeout", name)
			assert.Equal(t, name == "HTTP/1", resp.Close, name)
			return true
		})
	}
	_, text, err := w.stall(w.client(true), "/", "Accept", "text/html")
	require.NoError(t, err)
	assert.Contains(t, text, "did not arrive in time")
}

// TestBody_AppFails blames the App although the client is still sending.
func TestBody_AppFails(t *testing.T) {
	w := newWorld(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	resp, _ := do(t, w.client(true), request(t, http.MethodPost, "https://"+host+"/", io.LimitReader(zeros{}, 64<<20)))
	assert.Equal(t, http.StatusBadGateway, resp.StatusCode)
}

func TestHTTP3_StalledGet(t *testing.T) {
	w := newWorld(t, http.NotFoundHandler(), func(c *gateway.Config) { c.Patience.Progress = time.Second })
	c := w.client3()
	await.Until(t, "the answer", func() bool { // the connection may be idle for too long
		body, end := io.Pipe()
		defer func() { _ = end.Close() }()
		resp, err := c.Do(request(t, http.MethodGet, "https://"+host+"/", body))
		if err != nil {
			return false
		}
		assert.Equal(t, http.StatusRequestTimeout, resp.StatusCode)
		return resp.Body.Close() == nil
	})
}
