package gateway_test

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

const largestMessage = 1 << 20

// echo answers each message with itself, and "close CODE" with a close of that code. ended has how
// each connection ended.
func echo(options *websocket.AcceptOptions, ended chan<- error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, options)
		if err != nil {
			return
		}
		conn.SetReadLimit(2 * largestMessage)
		for {
			kind, text, err := conn.Read(r.Context())
			if err != nil {
				ended <- err
				return
			}
			var code websocket.StatusCode
			if _, err := fmt.Sscanf(string(text), "close %d", &code); err == nil {
				_ = conn.Close(code, "as you say")
				continue
			}
			if err := conn.Write(r.Context(), kind, text); err != nil {
				ended <- err
				return
			}
		}
	})
}

func (w *world) dialWebSocket(options websocket.DialOptions) *websocket.Conn {
	w.t.Helper()
	options.HTTPClient = w.client(false)
	conn, resp, err := websocket.Dial(w.t.Context(), "wss://"+host+"/", &options)
	require.NoError(w.t, err)
	assert.Equal(w.t, http.StatusSwitchingProtocols, resp.StatusCode)
	conn.SetReadLimit(2 * largestMessage)
	w.t.Cleanup(func() { _ = conn.CloseNow() })
	return conn
}

// TestWebSocket_Close closes from either end.
func TestWebSocket_Close(t *testing.T) {
	ended := make(chan error, 1)
	w := newWorld(t, echo(&websocket.AcceptOptions{Subprotocols: []string{"echo"}}, ended))
	for _, code := range []websocket.StatusCode{1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999} {
		var said websocket.CloseError
		conn := w.dialWebSocket(websocket.DialOptions{})
		_ = conn.Close(code, "enough") // it waits for the App's own for five seconds only
		require.ErrorAs(t, await.Receive(t, ended, "the App to hear of it"), &said)
		assert.Equal(t, websocket.CloseError{Code: code, Reason: "enough"}, said)

		conn = w.dialWebSocket(websocket.DialOptions{})
		require.NoError(t, conn.Write(t.Context(), websocket.MessageText, fmt.Appendf(nil, "close %d", code)))
		_, _, err := conn.Read(t.Context())
		require.ErrorAs(t, err, &said)
		assert.Equal(t, websocket.CloseError{Code: code, Reason: "as you say"}, said)
		require.Error(t, await.Receive(t, ended, "the App to end"))
	}
	conn := w.dialWebSocket(websocket.DialOptions{Subprotocols: []string{"other", "echo"}})
	assert.Equal(t, "echo", conn.Subprotocol())
	require.NoError(t, conn.CloseNow())
	require.Error(t, await.Receive(t, ended, "the App to hear of a connection that broke"))
}

// opening is a request for a WebSocket.
const opening = "GET /ws HTTP/1.1\r\nHost: " + host + "\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
	"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"

// open opens a WebSocket by hand.
func (w *world) open() (net.Conn, *bufio.Reader) {
	w.t.Helper()
	conn := w.connect()
	_, err := io.WriteString(conn, opening)
	require.NoError(w.t, err)
	from := bufio.NewReader(conn)
	resp, err := http.ReadResponse(from, nil)
	require.NoError(w.t, err)
	require.Equal(w.t, http.StatusSwitchingProtocols, resp.StatusCode)
	assert.Equal(w.t, "websocket", strings.ToLower(resp.Header.Get("Upgrade")))
	return conn, from
}

// frame is a frame that a client sends, masked or not.
func frame(first byte, masked bool, payload []byte) []byte {
	f := []byte{first}
	mask := byte(0)
	if masked {
		mask = 0x80
	}
	switch n := len(payload); {
	case n < 126:
		f = append(f, mask|byte(n))
	case n < 1<<16:
		f = binary.BigEndian.AppendUint16(append(f, mask|126), uint16(n))
	default:
		f = binary.BigEndian.AppendUint64(append(f, mask|127), uint64(n))
	}
	if !masked {
		return append(f, payload...)
	}
	key := [4]byte{1, 2, 3, 4}
	f = append(f, key[:]...)
	for i, b := range payload {
		f = append(f, b^key[i%4])
	}
	return f
}

const (
	final         = 0x80
	text, more    = 1, 0
	closes, pings = 8, 9
)

// TestWebSocket_PassesBytes sends what breaks the protocol: only the ends judge it. The App's first
// frame comes with its handshake.
func TestWebSocket_PassesBytes(t *testing.T) {
	const greeting = "\x81\x05Hello"
	w := newWorld(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, both, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = both.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n" + greeting)
		_ = both.Flush()
		_, _ = io.Copy(conn, both)
	}))
	noise := make([]byte, largestMessage)
	_, _ = rand.Read(noise)
	conn, from := w.open()
	got := make([]byte, len(greeting))
	_, err := io.ReadFull(from, got)
	require.NoError(t, err)
	assert.Equal(t, greeting, string(got))
	for name, sent := range map[string][]byte{
		"not masked":                   frame(final|text, false, []byte("Hello")),
		"masked":                       frame(final|text, true, []byte("Hello")),
		"reserved bits":                frame(final|0x70|text, true, []byte("Hello")),
		"a reserved kind":              frame(final|3, true, nil),
		"a reserved kind of control":   frame(final|0xb, true, nil),
		"a long ping":                  frame(final|pings, true, make([]byte, 126)),
		"a ping in fragments":          frame(pings, true, []byte("x")),
		"the rest of nothing":          frame(final|more, true, []byte("x")),
		"a text that is not UTF-8":     frame(final|text, true, []byte{0xc0, 0xaf}),
		"a close with half a code":     frame(final|closes, true, []byte{3}),
		"a close with a code of none":  frame(final|closes, true, []byte{3, 237}),
		"a close, and more after it":   append(frame(final|closes, true, []byte{3, 232}), frame(final|text, true, []byte("x"))...),
		"a length in too many bytes":   {final | text, 127, 0, 0, 0, 0, 0, 0, 0, 1, 'x'},
		"a length of more than memory": {final | text, 127, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
		"another request":              []byte(opening),
		"noise":                        noise,
	} {
		written := make(chan error, 1)
		go func() {
			_, err := conn.Write(sent)
			written <- err
		}()
		back := make([]byte, len(sent))
		_, err := io.ReadFull(from, back)
		require.NoError(t, err, name)
		require.NoError(t, await.Receive(t, written, name), name)
		assert.True(t, bytes.Equal(sent, back), name)
	}
}

func TestWebSocket_Refused(t *testing.T) {
	w := newWorld(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Sec-WebSocket-Version", "13")
		w.WriteHeader(http.StatusUpgradeRequired)
		_, _ = io.WriteString(w, "another version")
	}))
	c := w.client(false)
	for range 2 {
		resp, body := do(t, c, request(t, http.MethodGet, "https://"+host+"/", nil, "Connection", "Upgrade", "Upgrade", "websocket"))
		assert.Equal(t, http.StatusUpgradeRequired, resp.StatusCode)
		assert.Equal(t, "another version", body)
	}
}

// TestUpgrade_WebSocketOnly keeps visitors from an App that speaks HTTP/2 without TLS, beside the
// gateway's own requests.
func TestUpgrade_WebSocketOnly(t *testing.T) {
	seen := make(chan http.Header, 1)
	w := newWorld(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header.Clone()
		if r.URL.Path != "/switch" {
			return
		}
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
			_ = conn.Close()
		}
	}))
	for path, status := range map[string]int{"/": http.StatusOK, "/switch": http.StatusBadGateway} {
		resp, _ := do(t, w.client(false), request(t, http.MethodGet, "https://"+host+path, nil,
			"Connection", "Upgrade, HTTP2-Settings", "Upgrade", "h2c", "HTTP2-Settings", "AAMAAABkAARAAAAAAAIAAAAA"))
		assert.Equal(t, status, resp.StatusCode, path)
		header := await.Receive(t, seen, "the request")
		for _, name := range []string{"Connection", "Upgrade", "Http2-Settings"} {
			assert.Empty(t, header.Get(name), name)
		}
	}
}

// Open streams count apart from requests: they take no place of these, and have a limit of their
// own.
func TestStreams_CountApart(t *testing.T) {
	ended := make(chan error, 100)
	w := newWorld(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Upgrade") != "":
			echo(nil, ended).ServeHTTP(w, r)
		case r.URL.Path == "/events":
			w.Header().Set("Content-Type", "text/event-stream")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		default:
			w.WriteHeader(http.StatusNoContent)
		}
	}), func(c *gateway.Config) { c.Limits.Requests.PerHost, c.Limits.Streams.PerHost = 1, 2 })
	c := w.client(true)
	first := w.dialWebSocket(websocket.DialOptions{})
	events, err := c.Do(request(t, http.MethodGet, "https://"+host+"/events", nil))
	require.NoError(t, err)
	resp, _ := do(t, c, request(t, http.MethodGet, "https://"+host+"/", nil))
	assert.Equal(t, http.StatusNoContent, resp.StatusCode)
	upgrade := func() int {
		conn, resp, err := websocket.Dial(t.Context(), "wss://"+host+"/", &websocket.DialOptions{HTTPClient: w.client(false)})
		if err == nil {
			_ = conn.CloseNow()
		}
		require.NotNil(t, resp, err)
		return resp.StatusCode
	}
	assert.Equal(t, http.StatusServiceUnavailable, upgrade(), "one more")
	require.NoError(t, events.Body.Close())
	await.Until(t, "there is a place again", func() bool { return upgrade() == http.StatusSwitchingProtocols })
	require.NoError(t, first.CloseNow())
}
