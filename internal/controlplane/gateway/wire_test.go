package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway"
	agentside "github.com/pipeops/pipeops-vm-agent/internal/gateway"
	"github.com/pipeops/pipeops-vm-agent/test/faultproxy"
)

// app speaks HTTP/1.1 by hand. It reports whether the connection takes another request.
type app func(conn net.Conn, r *http.Request) (again bool)

// wire is a site whose App sees and sends bytes.
type wire struct {
	*site
	seen chan string // what the App received of each whole request
	mu   sync.Mutex
	app  app
}

// newWire returns a gateway in tunnel mode or in direct mode.
func newWire(t *testing.T, mode string, change ...func(*gateway.Config)) *wire {
	t.Helper()
	w := &wire{seen: make(chan string, 64)}
	plain, secure := listen(t), tls.NewListener(listen(t), &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*issued(t)}})
	w.site = &site{balancer: faultproxy.New(t, secure.Addr().String()), app: plain.Addr().String()}
	w.world = newWorld(t, nil, append([]func(*gateway.Config){func(c *gateway.Config) {
		c.Direct = gateway.Direct{Allowed: loopback, Port: w.balancer.Port(), Timing: quick, Mode: mode}
	}}, change...)...)
	w.site.gateway = w.world.gateway
	w.handler.Endpoints = agentside.Endpoints{Allowed: loopback, Port: w.balancer.Port()}
	for _, ln := range []net.Listener{plain, secure} {
		w.run(func(ctx context.Context) error { return w.serve(ctx, ln) })
	}
	w.endpoint("127.0.0.1")
	if mode == gateway.ModeDirect {
		w.awaitMode(mode, "")
	}
	return w
}

// serve is the App at one of its two ports.
func (w *wire) serve(ctx context.Context, ln net.Listener) error {
	var conns sync.WaitGroup
	defer conns.Wait()
	defer context.AfterFunc(ctx, func() { _ = ln.Close() })()
	for {
		conn, err := ln.Accept()
		if err != nil {
			return err
		}
		conns.Go(func() {
			defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
			w.converse(conn)
			_ = conn.Close()
		})
	}
}

func (w *wire) converse(conn net.Conn) {
	var got bytes.Buffer
	in := bufio.NewReader(io.TeeReader(conn, &got))
	for again := true; again; {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		r.Body = &heard{r.Body, func() {
			w.seen <- got.String()
			got.Reset()
		}}
		w.mu.Lock()
		app := w.app
		w.mu.Unlock()
		again = app(conn, r)
	}
}

// heard is a body that calls a function at its end.
type heard struct {
	io.ReadCloser
	ended func()
}

// Read implements io.Reader.
func (h *heard) Read(p []byte) (int, error) {
	n, err := h.ReadCloser.Read(p)
	if err == io.EOF && h.ended != nil { //nolint:errorlint // io.Reader's own
		h.ended()
		h.ended = nil
	}
	return n, err
}

func (w *wire) speaks(a app) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.app = a
}

// answers is an App that reads requests to their ends. An answer without a length ends with its
// connection.
func answers(text string) app {
	return func(conn net.Conn, r *http.Request) bool {
		_, err := io.Copy(io.Discard, r.Body)
		if err == nil {
			_, err = io.WriteString(conn, text)
		}
		return err == nil && text == fine
	}
}

const fine = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

// visitor connects by TLS for HTTP/1.
func (w *wire) visitor() net.Conn {
	w.t.Helper()
	cfg := &tls.Config{RootCAs: w.roots, ServerName: host, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	conn, err := (&tls.Dialer{Config: cfg}).DialContext(w.t.Context(), "tcp", w.secure.String())
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// say sends bytes and returns those of the answers to it, up to the end of a final one, or of the
// connection.
func (w *wire) say(text string) string {
	conn := w.visitor()
	defer func() { _ = conn.Close() }()
	_, _ = io.WriteString(conn, text)
	var got bytes.Buffer
	in := bufio.NewReader(io.TeeReader(conn, &got))
	method, _, _ := strings.Cut(text, " ")
	for {
		resp, err := http.ReadResponse(in, &http.Request{Method: method})
		if err != nil {
			return got.String() + "\n" + err.Error()
		}
		if _, err = io.Copy(io.Discard, resp.Body); err != nil {
			return got.String() + "\n" + err.Error()
		}
		if resp.StatusCode >= http.StatusOK {
			return got.String()
		}
	}
}

// sends sends the same over another version of HTTP.
func (w *wire) sends(c *http.Client, text string) string {
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
	require.NoError(w.t, err, text)
	target := r.RequestURI
	r.RequestURI, r.URL = "", &url.URL{Scheme: "https", Host: host, Opaque: target}
	r.Header.Del("Connection")
	resp, err := c.Do(r.WithContext(w.t.Context()))
	if err != nil {
		return err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	var got strings.Builder
	got.WriteString("HTTP " + resp.Status + "\r\n")
	_ = resp.Header.Write(&got)
	_, err = io.Copy(&got, resp.Body)
	if err != nil {
		got.WriteString(err.Error())
	}
	return got.String()
}

// row is a request and what comes of it. reaches and gets are lines of what the App and the visitor
// have to get; what begins with ! must not be there. A request for which reaches is empty must not
// reach the App.
type row struct {
	rule    string // what asks for it
	send    string // HTTP/1.1
	app     string // its answer; empty for 200
	reaches string
	gets    string
}

func has(t *testing.T, rule, text, wanted string) {
	t.Helper()
	for want := range strings.SplitSeq(wanted, "\n") {
		if not, ok := strings.CutPrefix(want, "!"); ok {
			assert.NotContains(t, text, not, rule)
		} else {
			assert.Contains(t, text, want, rule)
		}
	}
}

func (w *wire) play(t *testing.T, r row, send func(string) string) {
	t.Helper()
	for len(w.seen) > 0 {
		<-w.seen
	}
	if r.app == "" {
		r.app = fine
	}
	w.speaks(answers(r.app))
	has(t, r.rule, send(r.send), r.gets)
	select { // it was there before its answer
	case got := <-w.seen:
		assert.NotEmpty(t, r.reaches, "%s: %s", r.rule, got)
		has(t, r.rule, got, r.reaches)
	default:
		assert.Empty(t, r.reaches, r.rule)
	}
}

// ask is a request without a body.
func ask(line string, header ...string) string {
	return line + " HTTP/1.1\r\nHost: " + host + "\r\n" + strings.Join(append(header, ""), "\r\n") + "\r\n"
}

// over plays rows in both modes, over the versions.
func over(t *testing.T, rows []row, versions ...string) {
	for _, mode := range []string{gateway.ModeTunnel, gateway.ModeDirect} {
		w := newWire(t, mode, func(c *gateway.Config) { c.HSTS = 1e9 })
		clients := map[string]func(string) string{"HTTP1": w.say}
		for version, c := range map[string]*http.Client{"HTTP2": w.client(true), "HTTP3": w.client3()} {
			clients[version] = func(text string) string { return w.sends(c, text) }
		}
		for _, version := range versions {
			t.Run(mode+"/"+version, func(t *testing.T) {
				for _, r := range rows {
					w.play(t, r, clients[version])
				}
			})
		}
	}
}

// TestWire_Targets passes targets on as they came (RFC 9110, 7.7; RFC 9112, 3.2).
func TestWire_Targets(t *testing.T) {
	var rows []row
	for _, target := range []string{
		"/", "/a%2Fb|c", `/a%2Fb"c`, "/a%2Fb{c}", "/a%2Fbé", "/a%2fb%2Fc", "/?", "/a?", "/a??b", "/a/../b", "/a/./b//c", "/%2e%2e/a", "//", "//a.example/b",
		"//a%2Fb", "/a;b=c,d:e@f!g$h&i'j(k)*+l", "/%7Ea/~b", "/a%", "/a?x=1;y=%zz&z", "/a?b=|\"{}é^`\\", "/a?%2F=/?", "/%E2%82%AC", "/a+b%20c", "/:80",
		"/a\\b", "/a^b`c<d>e", "/http://b.example/", "/%00", "/a?b#c", "/*", "/a%2F%5B]",
	} {
		r := row{rule: target, send: ask("GET " + target), reaches: "GET " + target + " HTTP/1.1\r\nHost: " + host + "\r\n", gets: " 200 "}
		if target == "/a%" { // RFC 3986, 2.1
			r.reaches, r.gets = "", " 400 "
		}
		rows = append(rows, r)
	}
	over(t, rows, "HTTP1", "HTTP2", "HTTP3")
}
