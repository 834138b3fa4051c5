package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/textproto"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/logbook"
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
	w.site = newSiteIn(t, mode, host, plain.Addr().String(), secure, change...)
	for _, ln := range []net.Listener{plain, secure} {
		w.run(func(ctx context.Context) error { return w.serve(ctx, ln) })
	}
	w.found(mode)
	return w
}

// serve is the App at one of its two ports.
func (w *wire) serve(ctx context.Context, ln net.Listener) error { return accept(ctx, ln, w.converse) }

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
	if err == io.EOF && h.ended != nil {
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

// answers is an App that reads requests to their ends. It closes the connection after all but what
// plain returns.
func answers(text string) app {
	return func(conn net.Conn, r *http.Request) bool {
		_, err := io.Copy(io.Discard, r.Body)
		if err == nil {
			_, err = io.WriteString(conn, text)
		}
		return err == nil && strings.Contains(text, "Content-Length: 2\r") && strings.HasSuffix(text, "ok")
	}
}

const fine = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

// say sends bytes and returns those of the answers to it, up to the end of a final one, or of the
// connection.
func (w *wire) say(text string) string {
	conn := w.connect()
	defer func() { _ = conn.Close() }()
	_, _ = io.WriteString(conn, text)
	var got bytes.Buffer
	in := bufio.NewReader(io.TeeReader(conn, &got))
	method, _, _ := strings.Cut(text, " ")
	for {
		resp, err := http.ReadResponse(in, &http.Request{Method: method})
		if err != nil {
			return got.String() + broken + err.Error()
		}
		if _, err = io.Copy(io.Discard, resp.Body); err != nil {
			return got.String() + broken + err.Error()
		}
		if resp.StatusCode >= http.StatusOK {
			return got.String()
		}
	}
}

// sends sends the same over another version of HTTP.
func (w *wire) sends(c *http.Client, text string) string {
	head, body, _ := strings.Cut(text, "\r\n\r\n")
	line, fields, _ := strings.Cut(head, "\r\n")
	method, target, _ := strings.Cut(strings.TrimSuffix(line, " HTTP/1.1"), " ")
	header, err := textproto.NewReader(bufio.NewReader(strings.NewReader(fields + "\r\n\r\n"))).ReadMIMEHeader()
	require.NoError(w.t, err, text)
	r := request(w.t, method, "https://"+host, strings.NewReader(body))
	r.Header, r.Host = http.Header(header), header.Get("Host")
	if r.URL.Opaque = target; strings.HasPrefix(target, "//") {
		r.URL.Opaque = "//" + host + target // what both clients take for the path
	}
	header.Del("Host")
	resp, err := c.Do(r)
	if err != nil {
		return broken + err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	var got strings.Builder
	got.WriteString("HTTP " + resp.Status + "\r\n")
	_ = resp.Header.Write(&got)
	if _, err = io.Copy(&got, resp.Body); err != nil {
		got.WriteString(broken + err.Error())
	}
	return got.String()
}

// broken precedes the error of an answer that is not whole.
const broken = "\nBROKEN: "

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
	return line + " HTTP/1.1\r\nHost: " + host + "\r\n" + strings.Join(append(header, "", ""), "\r\n")
}

// over plays rows in both modes, over the versions.
func over(t *testing.T, rows []row, versions ...string) {
	for _, mode := range []string{gateway.ModeTunnel, gateway.ModeDirect} {
		w := newWire(t, mode, func(c *gateway.Config) { c.HSTS = time.Second })
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
		"//a%2Fb", "/a;b=c,d:e@f!g$h&i'j(k)*+l", "/%7Ea/~b", "/a?x=1;y=%zz&z", "/a?b=|\"{}é^`\\", "/a?%2F=/?", "/%E2%82%AC", "/a+b%20c", "/:80",
		"/a\\b", "/a^b`c<d>e", "/http://b.example/", "/%00", "/a?b#c", "/*", "/a%2F%5B]",
	} {
		rows = append(rows, row{target, ask("GET " + target), "", "GET " + target + " HTTP/1.1\r\nHost: " + host + "\r\n", " 200 "})
	}
	over(t, rows, "HTTP1", "HTTP2", "HTTP3")
}

// chunks is a POST with a body in chunks, and with a header.
func chunks(body string, header ...string) string {
	return ask("POST /", append(header, "Transfer-Encoding: chunked")...) + body
}

// plain answers with a status, header lines and a body of two bytes.
func plain(status string, header ...string) string {
	return "HTTP/1.1 " + status + "\r\n" + strings.Join(append(header, "Content-Length: 2", "", "ok"), "\r\n")
}

// TestWire_Messages are rules for every version of HTTP. Sections without a number of an RFC are of
// RFC 9110.
func TestWire_Messages(t *testing.T) {
	grpc := "Content-Type: application/grpc"
	elsewhere := "GET / HTTP/1.1\r\nHost: unknown.example.org\r\n"
	over(t, []row{
		{"7.6.3 Via", ask("GET /", "Via: 1.0 fred"), "", "Via: 1.0 fred\n pipeops\r\n", " 200 \n!Via"},
		{"7.6.2 Max-Forwards 0 of OPTIONS", ask("OPTIONS /", "Max-Forwards: 0"), "", "", " 204 \nAllow: DELETE, GET"},
		{"7.6.2 Max-Forwards 0 of TRACE", ask("TRACE /", "Max-Forwards: 0"), "", "", " 405 \nAllow: DELETE, GET"},
		{"7.6.2 Max-Forwards of OPTIONS", ask("OPTIONS /", "Max-Forwards: 5"), "", "Max-Forwards: 4\r", " 200 "},
		{"7.6.2 Max-Forwards of TRACE", ask("TRACE /", "Max-Forwards: 1"), "", "TRACE / \nMax-Forwards: 0\r", " 200 "},
		{"7.6.2 Max-Forwards of other methods", ask("GET /", "Max-Forwards: 0"), "", "Max-Forwards: 0\r", " 200 "},
		{"7.6.2 Max-Forwards that is not a number", ask("OPTIONS /", "Max-Forwards: x"), "", "Max-Forwards: x\r", " 200 "},
		{"9.3.7 OPTIONS *", ask("OPTIONS *"), "", "OPTIONS * HTTP/1.1\r\nHost: " + host, " 200 "},
		{"9.1 an unknown method", ask("PROPFIND /"), "", "PROPFIND / HTTP/1.1", " 200 "},
		{"9112 3.2.4 GET *", ask("GET *"), "", "", " 400 "},
		{"httpoxy", ask("GET /", "Proxy: 203.0.113.9"), "", "!203.0.113.9", " 200 "},
		{"3875 4.1.18 low lines", ask("GET /", "X_Forwarded_For: 203.0.113.9", "X-Forwarded_Proto: 203.0.113.9", "x_request_id: 203.0.113.9"), "", "!203.0.113.9", " 200 "},
		{"a low line in another header", ask("GET /", "My_Header: 203.0.113.9"), "", "My_header: 203.0.113.9", " 200 "},
		{"other spellings of the target", ask("GET /", "X-Original-Url: /admin", "X_Rewrite_Url: /admin"), "", "!/admin", " 200 "},
		{"8.3 an empty header", ask("GET /", "X-Empty:"), "", "X-Empty: \r\n", " 200 "},
		{"5.3 lines of one header", ask("GET /", "X-Twice: a", "X-Twice: b"), "", "X-Twice: a\r\nX-Twice: b\r\n", " 200 "},
		{"7.6.1 TE", ask("GET /", "TE: trailers"), "", "Te: trailers\r\n", " 200 "},
		{"8.4 Accept-Encoding", ask("GET /", "Accept-Encoding: br;q=0.5, gzip"), "", "Accept-Encoding: br;q=0.5, gzip\r\n", " 200 "},
		{"10.1.5 no User-Agent is added", ask("GET /", "User-Agent: "), "", "!Go-http-client", " 200 "},
		{"6797 7.1 HSTS", ask("GET /"), plain("200 OK", "Strict-Transport-Security: max-age=5; preload"), "GET /", "max-age=5; preload\n!max-age=1\r"},
		{"6797 7.1 HSTS of the gateway", ask("GET /"), "", "GET /", "Strict-Transport-Security: max-age=1\r"},
		{"8.3 no Content-Type is added", ask("GET /"), plain("200 OK"), "GET /", " 200 \n!Content-Type"},
		{"X-Request-Id", ask("GET /", "X-Request-Id: forged"), plain("200 OK", "X-Request-Id: forged"), "!forged\nX-Request-Id: ", "!forged\nX-Request-Id: "},
		{"15.5.5 no host", elsewhere + "\r\n", "", "", " 404 \nX-Request-Id: \nmax-age=1\r"},
		{"gRPC's failures", elsewhere + grpc + "\r\n\r\n", "", "", " 200 \nGrpc-Status: 12\r\nGrpc-Message: No application\napplication/grpc\r"},
		{"gRPC's kind is whole", elsewhere + grpc + "-web\r\n\r\n", "", "", " 404 \n!Grpc-Status"},
		{"15 any status", ask("GET /"), plain("299 Odd"), "GET /", " 299 "},
		{"15.5.2 WWW-Authenticate", ask("GET /"), plain("401 Unauthorized", "WWW-Authenticate: Basic, Bearer"), "GET /", " 401 \nBasic, Bearer"},
		{"15.5.6 Allow of the App", ask("DELETE /"), plain("405 Method Not Allowed", "Allow: GET"), "DELETE /", " 405 \nAllow: GET\r"},
		{"6265 3 Set-Cookie", ask("GET /"), plain("200 OK", "Set-Cookie: a=1", "Set-Cookie: b=2"), "GET /", "Set-Cookie: a=1\r\nSet-Cookie: b=2\r\n"},
		{"15.3.5 no content", ask("GET /"), "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n", "GET /", " 204 \n!Content-Length"},
		{"15.4.5 not modified", ask("GET /"), "HTTP/1.1 304 Not Modified\r\nConnection: close\r\nEtag: \"a\"\r\n\r\n", "GET /", " 304 \nEtag: \"a\""},
		{"9.3.2 HEAD", ask("HEAD /"), "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1000\r\n\r\n", "HEAD /", " 200 \nContent-Length: 1000"},
		{"8.6 Content-Length", ask("POST /", "Content-Length: 4") + "text", "", "Content-Length: 4\r\n\ntext\n!chunked", " 200 "},
		{"9112 6.3 a length until the end", ask("GET /"), "HTTP/1.0 200 OK\r\n\r\nall of it", "GET /", " 200 \nall of it\n!BROKEN"},
		{"9112 7.1 chunks", ask("GET /"), "HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\nab\r\n0\r\n\r\n", "GET /", " 200 \nab\n!BROKEN\n!;a=b"},
		{"9112 8 a length that is cut off", ask("GET /"), "HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n" + strings.Repeat("x", 100_000), "GET /", "BROKEN"},
		{"9112 8 chunks that are cut off", ask("GET /"), "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n", "GET /", "BROKEN"},
		{"9112 7.1 a bad chunk of the App", ask("GET /"), "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\nzz\r\n", "GET /", "BROKEN"},
		{"15.6.3 no HTTP", ask("POST /"), "hello\r\n\r\n", "POST /", " 502 "},
		{"15.6.3 two lengths", ask("POST /"), "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok", "POST /", " 502 "},
		{"15.6.3 a header without an end", ask("POST /"), "HTTP/1.1 200 OK\r\nA: b\r\n", "POST /", " 502 "},
		{"15.2 an interim answer", ask("GET /"), "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + plain("200 OK"), "GET /", " 200 \nX-Request-Id: \nmax-age=1\r"},
	}, "HTTP1", "HTTP2", "HTTP3")
}

// TestWire_HTTP1 are the rules of RFC 9112, and those of RFC 9110 that HTTP/1 shows.
func TestWire_HTTP1(t *testing.T) {
	raw := func(line string, rest ...string) string {
		return line + "\r\n" + strings.Join(rest, "\r\n") + "\r\n\r\n"
	}
	at := "Host: " + host
	over(t, []row{
		{"9110 7.6.3 Via", ask("GET /"), "", "Via: 1.1 pipeops\r\n", " 200 "},
		{"9110 7.6.3 Via of HTTP/1.0", raw("GET / HTTP/1.0", at), "", "GET / HTTP/1.1\nVia: 1.0 pipeops\r\n", " 200 "},
		{"9110 7.6.1 Connection", ask("GET /", "Connection: close, X-Drop", "X-Drop: a", "Keep-Alive: 5", "Proxy-Connection: x"), "", "!X-Drop\n!Keep-Alive\n!Proxy-", "Connection: close\r"},
		{"9110 7.6.1 Connection of the App", ask("GET /"), plain("200 OK", "Connection: X-Drop", "X-Drop: a", "Keep-Alive: 5"), "GET /", " 200 \n!X-Drop\n!Keep-Alive\n!close"},
		{"9110 7.8 Upgrade", ask("GET /", "Connection: Upgrade", "Upgrade: h2c"), "", "!Upgrade", " 200 "},
		{"9110 10.1.1 Expect", ask("POST /", "Expect: 100-continue", "Content-Length: 4") + "text", "", "\r\n\r\ntext", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 "},
		{"9110 10.1.1 another Expect", ask("POST /", "Expect: x"), "", "", " 417 "},
		{"9110 15.2 an interim answer", ask("GET /"), "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + plain("200 OK"), "GET /", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 \nX-Request-Id: \nmax-age=1\r"},
		{"9110 15.2 none for HTTP/1.0", raw("GET / HTTP/1.0", at), "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + plain("200 OK"), "GET /", " 200 \n!103\n!Link"},
		{"9110 15.5.6 CONNECT", raw("CONNECT "+host+":443 HTTP/1.1", at), "", "", " 405 \nAllow: DELETE, GET"},
		{"9110 6.5 trailers", chunks("4\r\ntext\r\n0\r\nX-Sum: 1\r\n\r\n", "Trailer: X-Sum"), "", "Trailer: X-Sum\r\n\ntext\r\n0\r\nX-Sum: 1\r\n\r\n", " 200 "},
		{"9110 6.6.2 trailers that are not announced", chunks("4\r\ntext\r\n0\r\nX-Sum: 1\r\n\r\n"), "", "text\r\n0\r\nX-Sum: 1\r\n\r\n", " 200 "},
		{"9110 6.5.1 trailers about the client", chunks("0\r\nX-Forwarded-For: 203.0.113.9\r\nx_real_ip: 203.0.113.9\r\n\r\n", "Trailer: X-Forwarded-For"), "", "!203.0.113.9\n!Trailer", " 200 "},
		{"9110 6.5.1 trailers of the header", chunks("0\r\nHost: b.example\r\nContent-Length: 9\r\nAuthorization: x\r\n\r\n"), "", "!b.example\n!Content-Length\n!Authorization", " 200 "},
		{"9110 6.5.1 a length announced", chunks("0\r\n\r\n", "Trailer: Content-Length"), "", "", " 400 "},
		{"9110 7.2 no host", raw("GET / HTTP/1.1", "X: y"), "", "", " 400 "},
		{"9110 7.2 a host in Unicode", raw("GET / HTTP/1.1", "Host: bücher.example"), "", "", " 400 "},
		{"3986 3.2.3 a port", raw("GET / HTTP/1.1", at+":443"), "", at + ":443\r\n", " 200 "},
		{"3986 3.2.3 an empty port", raw("GET / HTTP/1.1", at+":"), "", at, " 200 "},
		{"3986 3.2.3 a port that is not a number", raw("GET / HTTP/1.1", at+":evil.com"), "", "", " 400 "},
		{"1034 3.1 the root's dot", raw("GET / HTTP/1.1", at+"."), "", at + ".\r\n", " 200 "},
		{"4343 3 capitals", raw("GET / HTTP/1.1", "Host: "+strings.ToUpper(host)), "", strings.ToUpper(host), " 200 "},
		{"9112 2.2 an empty line before", "\r\n" + ask("GET /"), "", "", " 400 "},
		{"9112 2.2 lines end with LF", "GET / HTTP/1.1\n" + at + "\n\n", "", "GET / HTTP/1.1\r\n" + at, " 200 "},
		{"9112 2.3 a later minor version", raw("GET / HTTP/1.2", at), "", "GET / HTTP/1.1", " 200 "},
		{"9112 2.3 a major version", raw("GET / HTTP/3.0", at), "", "", " 505 "},
		{"9112 3.2.2 an absolute target", raw("GET https://"+host+"/a%2Fb|c? HTTP/1.1", "Host: b.example"), "", "GET /a%2Fb|c? HTTP/1.1\r\n" + at, " 200 "},
		{"9112 3.2.2 an absolute target without a path", raw("GET https://"+host+"?a HTTP/1.1", at), "", "GET /?a HTTP/1.1", " 200 "},
		{"9112 3.2.2 an absolute target with neither", raw("GET https://"+host+" HTTP/1.1", at), "", "GET / HTTP/1.1", " 200 "},
		{"9112 3.2.4 OPTIONS of a host", raw("OPTIONS https://"+host+" HTTP/1.1", at), "", "OPTIONS * HTTP/1.1", " 200 "},
		{"9112 3.2 a target without a slash", raw("GET a HTTP/1.1", at), "", "", " 400 "},
		{"3986 2.1 half an escape", ask("GET /a%"), "", "", " 400 "},
		{"9112 3.2 a space", raw("GET /a b HTTP/1.1", at), "", "", " 400 "},
		{"9112 5.1 a space before the colon", ask("GET /", "X : y"), "", "", " 400 "},
		{"9112 5.2 a folded line", ask("GET /", "X: a", " b"), "", "X: a b\r\n", " 200 "},
		{"9112 6.1 both lengths", chunks("4\r\ntext\r\n0\r\n\r\n", "Content-Length: 4"), "", "chunked\n!Content-Length", " 200 \nConnection: close\r"},
		{"9112 6.1 both lengths, another order", ask("POST /", "transfer-encoding: chunked", "content-length: 4") + "0\r\n\r\n", "", "!Content-Length", " 200 \nConnection: close\r"},
		{"9112 6.1 chunks alone", chunks("4\r\ntext\r\n0\r\n\r\n"), "", "chunked", " 200 \n!Connection"},
		{"9112 6.1 both, before an interim answer", chunks("0\r\n\r\n", "Content-Length: 4"), "HTTP/1.1 103 Early Hints\r\n\r\n" + plain("200 OK"), "chunked", " 200 \nConnection: close\r"},
		{"9112 6.1 chunks in HTTP/1.0", raw("POST / HTTP/1.0", at, "Transfer-Encoding: chunked", "Connection: keep-alive"), "", "", " 400 \nConnection: close\r"},
		{"9112 6.1 chunks in HTTP/1.0, with a length", raw("POST / HTTP/1.0", at, "Transfer-Encoding: chunked", "Content-Length: 0"), "", "", " 400 "},
		{"9112 6.1 an unknown encoding", ask("POST /", "Transfer-Encoding: gzip, chunked"), "", "", " 501 "},
		{"9112 6.3 a length that is none", ask("POST /", "Content-Length: +4") + "text", "", "", " 400 "},
		{"9112 7.1 chunks of any case", chunks("A\r\n0123456789\r\na\r\n0123456789\r\n0\r\n\r\n"), "", "0123456789", " 200 "},
		{"9112 7.1.1 a chunk's extension", chunks("4;a=b\r\ntext\r\n0\r\n\r\n"), "", "\r\n4\r\ntext\r\n\n!a=b", " 200 "},
		{"9112 7.1 a size that is none", chunks("zz\r\n"), "", "", " 400 \nbad_request\nConnection: close\r"},
		{"9112 7.1 a second size that is none", chunks("2\r\nab\r\nzz\r\n"), "", "", " 400 "},
		{"9112 7.1 a negative size", chunks("-1\r\n"), "", "", " 400 "},
		{"9112 7.1 a size that is too large", chunks("fffffffffffffffff\r\n"), "", "", " 400 "},
		{"9112 7.1 no end of a chunk", chunks("2\r\nabc\r\n0\r\n\r\n"), "", "", " 400 "},
		{"9112 7.1 a bad trailer", chunks("0\r\nno colon\r\n\r\n"), "", "", " 400 "},
		{"9112 9.3 HTTP/1.0", raw("GET / HTTP/1.0", at), "", "GET / HTTP/1.1", " 200 \n!keep-alive"},
		{"9112 9.3 HTTP/1.0 that continues", raw("GET / HTTP/1.0", at, "Connection: keep-alive"), "", "GET / HTTP/1.1", "Connection: keep-alive\r"},
	}, "HTTP1")
}

// versions are clients whose requests may have bodies without end.
func (w *wire) versions() map[string]*http.Client {
	return map[string]*http.Client{"HTTP1": w.client(false), "HTTP2": w.client(true), "HTTP3": w.client3()}
}

// TestWire_EarlyAnswer has the App answer while the visitor still sends (RFC 9110, 7.5; RFC 9112,
// 9.5). The visitor sends on when it has the answer to what it has sent.
func TestWire_EarlyAnswer(t *testing.T) {
	for _, mode := range []string{gateway.ModeTunnel, gateway.ModeDirect} {
		w := newWire(t, mode)
		w.speaks(func(conn net.Conn, r *http.Request) bool { // echoes what comes
			_, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n")
			chunked := httputil.NewChunkedWriter(conn)
			if err == nil {
				_, err = io.Copy(chunked, r.Body)
			}
			if err == nil && chunked.Close() == nil {
				_, _ = io.WriteString(conn, "\r\n")
			}
			return false
		})
		for version, c := range w.versions() {
			body, send := io.Pipe()
			go func() { _, _ = io.WriteString(send, "0") }()
			resp, err := c.Do(request(t, http.MethodPost, "https://"+host+"/", body))
			require.NoError(t, err, mode+version)
			for part := range 10 {
				got := make([]byte, 1)
				_, err = io.ReadFull(resp.Body, got)
				require.NoError(t, err, mode+version)
				assert.Equal(t, strconv.Itoa(part), string(got))
				if part < 9 {
					_, _ = io.WriteString(send, strconv.Itoa(part+1))
				}
			}
			require.NoError(t, send.Close())
			rest, err := io.ReadAll(resp.Body)
			require.NoError(t, err, mode+version)
			assert.Empty(t, rest)
			require.NoError(t, resp.Body.Close())
		}
		w.speaks(func(conn net.Conn, _ *http.Request) bool { // reads no body
			_, _ = io.WriteString(conn, "HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 100000\r\n\r\n"+strings.Repeat("x", 100_000))
			_, _ = io.Copy(io.Discard, conn)
			return false
		})
		for _, begun := range []string{ask("POST /", "Content-Length: 1000") + "some", chunks("4\r\nsome\r\n"), ask("PUT /", "Content-Length: 1000000000") + "some"} {
			has(t, mode+begun, w.say(begun), " 413 \nConnection: close\r\nxxx\n!BROKEN")
		}
	}
}

// TestWire_Trailers passes on a request's trailers (RFC 9110, 6.5).
func TestWire_Trailers(t *testing.T) {
	for _, mode := range []string{gateway.ModeTunnel, gateway.ModeDirect} {
		w := newWire(t, mode)
		w.speaks(answers(fine))
		for version, c := range w.versions() {
			trailer := http.Header{"X-Sum": nil}
			r := request(t, http.MethodPost, "https://"+host+"/", &heard{io.NopCloser(strings.NewReader("text")), func() { trailer.Set("X-Sum", "1") }})
			r.Trailer = trailer
			do(t, c, r)
			has(t, mode+version, await.Receive(t, w.seen, version), "Trailer: X-Sum\r\n\n0\r\nX-Sum: 1\r\n\r\n")
		}
	}
}

// TestWire_FlushesBytes passes on the begin of an answer before its end, also of a known length.
func TestWire_FlushesBytes(t *testing.T) {
	for _, mode := range []string{gateway.ModeTunnel, gateway.ModeDirect} {
		w := newWire(t, mode)
		next := make(chan struct{})
		w.speaks(func(conn net.Conn, _ *http.Request) bool {
			for _, part := range []string{"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n", "01234", "56789"} {
				_, _ = io.WriteString(conn, part)
				<-next
			}
			return false
		})
		for version, c := range w.versions() {
			resp, err := c.Do(request(t, http.MethodGet, "https://"+host+"/", nil))
			require.NoError(t, err, mode+version)
			next <- struct{}{}
			for _, want := range []string{"01234", "56789"} {
				got := make([]byte, 5)
				_, err = io.ReadFull(resp.Body, got)
				require.NoError(t, err, mode+version)
				assert.Equal(t, want, string(got))
				next <- struct{}{}
			}
			require.NoError(t, resp.Body.Close())
		}
	}
}

// TestWire_HalfCloses ends one direction of a WebSocket, and a body too early (RFC 9112, 8).
func TestWire_HalfCloses(t *testing.T) {
	for _, mode := range []string{gateway.ModeTunnel, gateway.ModeDirect} {
		w := newWire(t, mode)
		w.speaks(func(conn net.Conn, _ *http.Request) bool {
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
			sent, _ := io.ReadAll(conn)
			_, _ = io.WriteString(conn, "all of "+string(sent))
			return false
		})
		conn, from := w.open()
		_, err := io.WriteString(conn, "it")
		require.NoError(t, err)
		require.NoError(t, conn.(*tls.Conn).CloseWrite())
		got, err := io.ReadAll(from)
		require.NoError(t, err)
		assert.Equal(t, "all of it", string(got), mode)

		w.speaks(answers(fine))
		conn = w.connect()
		_, err = io.WriteString(conn, ask("POST /", "Content-Length: 9")+"text")
		require.NoError(t, err)
		require.NoError(t, conn.(*tls.Conn).CloseWrite())
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		assert.Equal(t, http.StatusBadRequest, resp.StatusCode, mode)
		require.NoError(t, resp.Body.Close())
	}
}

// TestWire_LogsFailures has the ID of each error page in the log at the default level.
func TestWire_LogsFailures(t *testing.T) {
	var log logbook.Book
	w := newWire(t, gateway.ModeTunnel, func(c *gateway.Config) { c.Log = zerolog.New(&log).Level(zerolog.InfoLevel) })
	for _, url := range []string{"https://" + host, "http://" + host} {
		r := request(t, http.MethodGet, url, nil)
		r.Host = "unknown.example.org"
		resp, _ := do(t, w.client(false), r)
		id := resp.Header.Get("X-Request-Id")
		require.NotEmpty(t, id)
		await.Until(t, url, func() bool { return strings.Contains(log.String(), id) })
	}
}

// TestWire_UnknownName refuses a handshake for a host that is not served (RFC 6066, 3), and takes
// names with a low line for a wildcard's.
func TestWire_UnknownName(t *testing.T) {
	w := newWire(t, gateway.ModeTunnel)
	dial := func(name string) error {
		conn, err := (&tls.Dialer{Config: &tls.Config{RootCAs: w.roots, ServerName: name, MinVersion: tls.VersionTLS12}}).
			DialContext(t.Context(), "tcp", w.secure.String())
		if err == nil {
			err = conn.Close()
		}
		return err
	}
	require.ErrorContains(t, dial("unknown.example.org"), "unrecognized name")
	serves(t, w.store, "a2", time.Now(), "txt", "*.example.net")
	require.NoError(t, w.table.Refresh(t.Context()))
	require.NoError(t, dial("a_b.example.net"))
	r := request(t, http.MethodGet, "https://a_b.example.net/", nil)
	resp, _ := do(t, w.client(true), r)
	assert.Equal(t, http.StatusNotFound, resp.StatusCode, "the agent has no such route")
}
