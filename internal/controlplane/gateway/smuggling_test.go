package gateway_test

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/hosts"
	agentside "github.com/pipeops/pipeops-vm-agent/internal/gateway"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/hostile"
)

const (
	// neighbour is a host of another agent, and internal one that no agent serves.
	neighbour, internal = "www.example.net", "secret.internal"
	// smuggled is a request that the gateway must not pass on as the App reads it.
	smuggled = "GET /smuggled HTTP/1.1\r\nHost: " + internal + "\r\nX-Forwarded-For: 203.0.113.9\r\n\r\n"
)

// late is the path of a request that is whole when its header has come. It may reach an App before
// its body is refused, or not.
const late = "/late"

// reached is a request as an App received it. The header of one that is not whole may arrive at any
// time, as its body is refused.
type reached struct {
	app, host, path, id, client, body string
	whole                             bool
}

// smuggling is a world with the Apps of two agents, which note what reaches them.
type smuggling struct {
	*world
	mu      sync.Mutex
	reached []reached
}

func newSmuggling(t *testing.T) *smuggling {
	s := &smuggling{}
	s.world = newWorld(t, nil)
	serves(t, s.store, "a2", time.Now(), hosts.CNAME, neighbour)
	require.NoError(t, s.table.Refresh(t.Context()))
	s.handler.Set([]agentside.Route{
		{Host: host, Path: "/", PathType: "Prefix", Addresses: []string{s.backend(s.note("a1"))}},
		{Host: neighbour, Path: "/", PathType: "Prefix", Addresses: []string{s.backend(s.note("a2"))}},
		{Host: internal, Path: "/", PathType: "Prefix", Addresses: []string{s.backend(s.note("internal"))}},
	})
	return s
}

func (s *smuggling) note(app string) http.Handler {
	return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.reached = append(s.reached, reached{
			app, r.Host, r.RequestURI, r.Header.Get("X-Request-Id"), strings.Join(r.Header.Values("X-Forwarded-For"), ","), string(body), err == nil,
		})
	})
}

// send sends an attack of which some requests have to reach an App, and returns what reached one
// until the gateway had answered two more visitors. The connections to the agent are used again, so
// that what was left in one would show.
func (s *smuggling) send(t *testing.T, a hostile.Attack, requests int) []reached {
	t.Helper()
	s.mu.Lock()
	s.reached = nil
	s.mu.Unlock()
	conn, err := s.hostile(a.ALPN).Send(t.Context(), a)
	require.NoError(t, err, a.Name)
	if requests > 0 {
		await.Until(t, a.Name, func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			whole := 0
			for _, r := range s.reached {
				if r.whole {
					whole++
				}
			}
			return whole >= requests
		})
	} else {
		_, _ = hostile.Ended(conn, 300*time.Millisecond) // many connections stay open for another request
	}
	hostile.Reset(conn)
	for _, h2 := range []bool{false, true} {
		resp, _ := do(t, s.client(h2), request(t, http.MethodGet, "https://"+host+"/visitor", nil))
		require.Equal(t, http.StatusOK, resp.StatusCode, a.Name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reached
}

// mine checks that each request is one that the gateway made, and returns the whole ones of the
// attack.
func mine(t *testing.T, name string, all []reached) (attack []reached) {
	t.Helper()
	ids := map[string]bool{}
	for _, r := range all {
		assert.NotEmpty(t, r.id, name)
		assert.False(t, ids[r.id], "%s: two requests of one ID", name)
		ids[r.id] = true
		assert.Equal(t, "127.0.0.1", r.client, "%s: the client cannot say who it is", name)
		assert.Equal(t, map[string]string{host: "a1", neighbour: "a2"}[r.host], r.app, "%s: %+v", name, r)
		switch {
		case r.path == late:
			assert.Empty(t, r.body, name)
		case r.path != "/visitor" && r.whole:
			attack = append(attack, r)
		}
	}
	return attack
}

// TestSmuggling_HTTP1 checks that the gateway and Apps agree where each request ends and for whom
// it is.
func TestSmuggling_HTTP1(t *testing.T) {
	s := newSmuggling(t)
	post := "POST / HTTP/1.1\r\nHost: " + host + "\r\n"
	for name, c := range map[string]struct {
		send  string
		paths []string // of the whole requests that reach an App
	}{
		// The rest is a request of the same client's to the gateway, which refuses its host.
		"CL.TE":                       {post + "Content-Length: 200\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled, []string{"/"}},
		"TE.CL":                       {post + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n" + strconv.FormatInt(int64(len(smuggled)), 16) + "\r\n" + smuggled + "\r\n0\r\n\r\n", []string{"/"}},
		"CL.0":                        {post + "Content-Length: 0\r\n\r\n" + smuggled, []string{"/"}},
		"a body of GET":               {"GET / HTTP/1.1\r\nHost: " + host + "\r\nContent-Length: 5\r\n\r\nhello" + smuggled, []string{"/"}},
		"TE.TE, unknown":              {post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n" + smuggled, nil},
		"TE.TE, in one":               {post + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + smuggled, nil},
		"TE, a tab":                   {post + "Transfer-Encoding:\tchunked\r\n\r\n0\r\n\r\n" + smuggled, []string{"/"}},
		"TE, a vertical tab":          {post + "Transfer-Encoding: \vchunked\r\n\r\n0\r\n\r\n" + smuggled, nil},
		"TE, a space before":          {post + " Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled, nil},
		"TE, a space after":           {post + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + smuggled, nil},
		"TE, folded":                  {post + "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n" + smuggled, []string{"/"}},
		"TE in HTTP/1.0":              {"POST / HTTP/1.0\r\nHost: " + host + "\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled, nil},
		"CL twice":                    {post + "Content-Length: 0\r\nContent-Length: 90\r\n\r\n" + smuggled, nil},
		"CL, a list":                  {post + "Content-Length: 0, 90\r\n\r\n" + smuggled, nil},
		"CL, hexadecimal":             {post + "Content-Length: 0x0\r\n\r\n" + smuggled, nil},
		"a chunk's size, negative":    {post + "Transfer-Encoding: chunked\r\n\r\n-1\r\n" + smuggled, nil},
		"a chunk's size, too long":    {post + "Transfer-Encoding: chunked\r\n\r\n10000000000000000\r\n" + smuggled, nil},
		"a chunk's size, 0x":          {post + "Transfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n" + smuggled, nil},
		"a bare LF ends a chunk":      {post + "Transfer-Encoding: chunked\r\n\r\n2\nxx\n0\n\n" + smuggled, nil},
		"a bare CR in a header":       {post + "X: a\rTransfer-Encoding: chunked\r\n\r\n" + smuggled, nil},
		"a NUL in a header":           {post + "X: a\x00\r\n\r\n" + smuggled, nil},
		"no name":                     {post + ": x\r\n\r\n" + smuggled, nil},
		"hop by hop":                  {"GET / HTTP/1.1\r\nHost: " + host + "\r\nConnection: X-Forwarded-For, X-Request-Id, Host\r\n\r\n", []string{"/"}},
		"trailers":                    {post + "Transfer-Encoding: chunked\r\nTrailer: X-Forwarded-For\r\n\r\n0\r\nX-Forwarded-For: 203.0.113.9\r\nHost: " + internal + "\r\n\r\n", []string{"/"}},
		"two hosts":                   {"GET / HTTP/1.1\r\nHost: " + host + "\r\nHost: " + internal + "\r\n\r\n", nil},
		"a host with a path":          {"GET / HTTP/1.1\r\nHost: " + host + "/x\r\n\r\n", nil},
		"a host with a user":          {"GET / HTTP/1.1\r\nHost: x@" + host + "\r\n\r\n", nil},
		"a host with a line":          {"GET / HTTP/1.1\r\nHost: " + host + "\n" + internal + "\r\n\r\n", nil},
		"a host that nobody serves":   {"GET / HTTP/1.1\r\nHost: " + internal + "\r\n\r\n", nil},
		"another host than SNI's":     {"GET / HTTP/1.1\r\nHost: " + neighbour + "\r\n\r\n", []string{"/"}},
		"the whole URL, not served":   {"GET http://" + internal + "/ HTTP/1.1\r\nHost: " + host + "\r\n\r\n", nil},
		"the whole URL, of the host":  {"GET https://" + host + "/ HTTP/1.1\r\nHost: " + internal + "\r\n\r\n", []string{"/"}},
		"the whole URL, another kind": {"GET gopher://" + internal + "/ HTTP/1.1\r\nHost: " + host + "\r\n\r\n", nil},
		"a path that looks like one":  {"GET //" + internal + "/ HTTP/1.1\r\nHost: " + host + "\r\n\r\n", []string{"//" + internal + "/"}},
		"CONNECT":                     {"CONNECT " + internal + ":80 HTTP/1.1\r\nHost: " + internal + ":80\r\n\r\n" + smuggled, nil},
		"CONNECT to the host":         {"CONNECT " + host + ":443 HTTP/1.1\r\nHost: " + host + "\r\n\r\n" + smuggled, nil},
		"a method with a space":       {"GET /smuggled HTTP/1.1\r\nX: POST / HTTP/1.1\r\n\r\n", nil},
		"a method that is none":       {"G(T / HTTP/1.1\r\nHost: " + host + "\r\n\r\n", nil},
		"no more than HTTP/0.9":       {"GET /smuggled\r\n\r\n", nil},
	} {
		got := mine(t, name, s.send(t, hostile.Attack{Name: name, Secure: true, ALPN: "http/1.1", Do: func(conn net.Conn) {
			_, _ = io.WriteString(conn, c.send)
		}}, len(c.paths)))
		var paths []string
		for _, r := range got {
			paths = append(paths, r.path)
		}
		assert.Equal(t, c.paths, paths, name)
	}
}

// TestSmuggling_HTTP2 sends what HTTP/2 can express and HTTP/1 cannot.
func TestSmuggling_HTTP2(t *testing.T) {
	s := newSmuggling(t)
	get := []string{":method", "GET", ":scheme", "https", ":authority", host, ":path", "/"}
	post := []string{":method", "POST", ":scheme", "https", ":authority", host, ":path", "/"}
	with := func(of []string, name, value string) []string {
		fields := append([]string{}, of...)
		for i := 0; i < len(fields); i += 2 {
			if fields[i] == name {
				fields[i+1] = value
				return fields
			}
		}
		return append(fields, name, value)
	}
	const injected = "x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled
	for name, c := range map[string]struct {
		fields  []string
		body    string
		reaches []string // hosts and paths of the whole requests that reach an App
	}{
		"H2.CL, 0":                  {with(with(post, ":path", late), "content-length", "0"), smuggled, nil},
		"H2.CL, less":               {with(post, "content-length", "1"), smuggled, nil},
		"H2.CL, twice":              {append(with(post, "content-length", "1"), "content-length", "2"), "xx", nil},
		"H2.CL, a list":             {with(with(post, ":path", late), "content-length", "0, 9"), smuggled, nil},
		"H2.TE":                     {with(post, "transfer-encoding", "chunked"), "0\r\n\r\n" + smuggled, nil},
		"H2.TE, capitals":           {with(post, "Transfer-Encoding", "chunked"), "0\r\n\r\n" + smuggled, nil},
		"a line in a value":         {with(get, "x", injected), "", nil},
		"LF in a value":             {with(get, "x", "x\nHost: "+internal), "", nil},
		"NUL in a value":            {with(get, "x", "x\x00y"), "", nil},
		"a line in a name":          {with(get, "x: y\r\ntransfer-encoding", "chunked"), "", nil},
		"a colon in a name":         {with(get, "host: "+internal, "x"), "", nil},
		"a line in the path":        {with(get, ":path", "/ HTTP/1.1\r\nHost: "+internal+"\r\n\r\n"), "", nil},
		"a space in the path":       {with(get, ":path", "/smuggled HTTP/1.1"), "", nil},
		"the path is a URL":         {with(get, ":path", "http://"+internal+"/"), "", []string{host + "/"}},
		"the path is relative":      {with(get, ":path", "smuggled"), "", nil},
		"a line in the method":      {with(get, ":method", "GET / HTTP/1.1\r\nHost: "+internal+"\r\n\r\nGET"), "", nil},
		"a space in the method":     {with(get, ":method", "GET /smuggled"), "", nil},
		"a line in the host":        {with(get, ":authority", host+"\r\nX-Forwarded-For: 203.0.113.9"), "", nil},
		"a host with a path":        {with(get, ":authority", host+"/x"), "", nil},
		"a host with a user":        {with(get, ":authority", "x@"+host), "", nil},
		"a host that is not served": {with(get, ":authority", internal), "", nil},
		"another host than SNI's":   {with(get, ":authority", neighbour), "", []string{neighbour + "/"}},
		"a host beside":             {with(get, "host", internal), "", []string{host + "/"}},
		"a scheme with a line":      {with(get, ":scheme", "http\r\nX: y"), "", nil},
		"a second path":             {append(with(get, "x", "y"), ":path", "/smuggled"), "", nil},
		"a pseudo-header late":      {append([]string{"x", "y"}, get...), "", nil},
		"connection":                {with(get, "connection", "x-forwarded-for"), "", nil},
		"upgrade":                   {with(get, "upgrade", "h2c"), "", nil},
		"CONNECT":                   {[]string{":method", "CONNECT", ":authority", internal + ":80"}, smuggled, nil},
		"CONNECT to the host":       {[]string{":method", "CONNECT", ":authority", host}, smuggled, nil},
	} {
		got := mine(t, name, s.send(t, hostile.Attack{Name: name, Secure: true, ALPN: "h2", Do: func(conn net.Conn) {
			var frames bytes.Buffer
			frames.WriteString(http2.ClientPreface)
			f := http2.NewFramer(&frames, nil)
			f.AllowIllegalWrites = true
			_ = f.WriteSettings()
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: hostile.Fields(c.fields...), EndHeaders: true, EndStream: c.body == ""})
			if c.body != "" {
				_ = f.WriteData(1, true, []byte(c.body))
			}
			_, _ = conn.Write(frames.Bytes())
		}}, len(c.reaches)))
		var reaches []string
		for _, r := range got {
			assert.NotContains(t, r.body, "smuggled", name)
			reaches = append(reaches, r.host+r.path)
		}
		assert.Equal(t, c.reaches, reaches, name)
	}
}
