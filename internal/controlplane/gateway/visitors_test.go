package gateway_test

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway"
	agentside "github.com/pipeops/pipeops-vm-agent/internal/gateway"
	"github.com/pipeops/pipeops-vm-agent/internal/htpasswd"
	"github.com/pipeops/pipeops-vm-agent/test/logbook"
)

// guard has the agent demand something of the visitors of the host. Its backend answers with the
// headers that name a user.
func (w *world) guard(v agentside.Visitors) {
	to := w.backend(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name := range r.Header {
			if strings.Contains(strings.ReplaceAll(strings.ToLower(name), "_", "-"), "user") && name != "User-Agent" {
				_, _ = w.Write([]byte(name + "=" + r.Header.Get(name) + " "))
			}
		}
		_, _ = w.Write([]byte("authorization=" + r.Header.Get("Authorization")))
	}))
	w.handler.Set([]agentside.Route{{Host: host, Path: "/", PathType: "Prefix", Addresses: []string{to}, Visitors: v}})
}

// forged are headers by which a visitor might be taken for another.
var forged = []string{
	"X-Real-Ip", "198.51.100.1", "X_Real_Ip", "198.51.100.1", "X-Forwarded-For", "198.51.100.1", "Forwarded", "for=198.51.100.1",
	"X-Forwarded-User", "root", "X_Forwarded_User", "root", "Remote-User", "root", "X-Forwarded-Groups", "admins",
}

// ways calls a test for each version of HTTP.
func (w *world) ways(t *testing.T, test func(t *testing.T, c *http.Client)) {
	t.Helper()
	for name, c := range map[string]*http.Client{"HTTP/1.1": w.client(false), "HTTP/2": w.client(true), "HTTP/3": w.client3()} {
		t.Run(name, func(t *testing.T) { test(t, c) })
	}
}

func TestVisitors_ByAddress(t *testing.T) {
	w := newWorld(t, nil)
	w.guard(agentside.Visitors{AllowFrom: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}})
	w.ways(t, func(t *testing.T, c *http.Client) {
		resp, body := do(t, c, request(t, http.MethodGet, "https://"+host+"/", nil, forged...))
		assert.Equal(t, http.StatusForbidden, resp.StatusCode)
		assert.Contains(t, body, "does not let in your address")
		resp, _ = do(t, c, request(t, http.MethodGet, "https://"+host+"/", nil, append(forged, "Content-Type", "application/grpc")...))
		assert.Equal(t, "7", resp.Header.Get("Grpc-Status"))
	})
	upgrade := []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="}
	resp, _ := do(t, w.client(false), request(t, http.MethodGet, "https://"+host+"/", nil, append(upgrade, forged...)...))
	assert.Equal(t, http.StatusForbidden, resp.StatusCode)
	require.NoError(t, w.gateway.Check(t.Context(), host, "/"), "whom the App lets in is its own decision")

	w.guard(agentside.Visitors{AllowFrom: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	w.ways(t, func(t *testing.T, c *http.Client) {
		resp, body := do(t, c, request(t, http.MethodGet, "https://"+host+"/", nil, forged...))
		assert.Equal(t, http.StatusOK, resp.StatusCode)
		assert.Equal(t, "authorization=", body, "the App gets no name of a user, because no password was checked")
	})
}

func TestVisitors_ByPassword(t *testing.T) {
	var log logbook.Book
	w := newWorld(t, nil, func(c *gateway.Config) { c.Log, c.AccessLog = zerolog.New(&log), true })
	hash, err := bcrypt.GenerateFromPassword([]byte("open sesame"), bcrypt.MinCost)
	require.NoError(t, err)
	users, err := htpasswd.Parse([]byte("anna:" + string(hash)))
	require.NoError(t, err)
	w.guard(agentside.Visitors{Users: users})
	w.ways(t, func(t *testing.T, c *http.Client) {
		r := request(t, http.MethodGet, "https://"+host+"/", nil, forged...)
		resp, body := do(t, c, r)
		assert.Equal(t, http.StatusUnauthorized, resp.StatusCode)
		assert.Equal(t, `Basic realm="`+host+`", charset="UTF-8"`, resp.Header.Get("WWW-Authenticate"))
		assert.Equal(t, "no-store", resp.Header.Get("Cache-Control"))
		assert.Contains(t, body, "unauthorized")
		for _, header := range []string{"Bearer open sesame", "Basic", "Basic !!", "Basic YW5uYQ==", "Digest YW5uYTpvcGVuIHNlc2FtZQ=="} {
			resp, _ = do(t, c, request(t, http.MethodGet, "https://"+host+"/", nil, "Authorization", header))
			assert.Equal(t, http.StatusUnauthorized, resp.StatusCode, header)
		}
		r = request(t, http.MethodGet, "https://"+host+"/", nil, forged...)
		r.SetBasicAuth("anna", "open sesame")
		resp, body = do(t, c, r)
		assert.Equal(t, http.StatusOK, resp.StatusCode)
		assert.Equal(t, "X-Forwarded-User=anna authorization=", body)
	})
	resp, _ := do(t, w.client(true), request(t, http.MethodPost, "https://"+host+"/a.B/C", nil, "Content-Type", "application/grpc"))
	assert.Equal(t, "16", resp.Header.Get("Grpc-Status"))
	assert.NotContains(t, log.String(), "sesame")
	assert.NotContains(t, log.String(), "YW5uYTpvcGVuIHNlc2FtZQ")
}

func TestVisitors_BodyTooLarge(t *testing.T) {
	w := newWorld(t, nil)
	w.guard(agentside.Visitors{MaxBodyBytes: 1000})
	w.ways(t, func(t *testing.T, c *http.Client) {
		for size, status := range map[int]int{1000: 200, 1001: 413, 1 << 20: 413} {
			resp, _ := do(t, c, request(t, http.MethodPost, "https://"+host+"/", strings.NewReader(strings.Repeat("a", size))))
			assert.Equal(t, status, resp.StatusCode, size)
		}
	})
}
