package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/proxytest"
)

// through goes through one proxy wherever it goes.
func through(text string) Func {
	return func(*url.URL) (*url.URL, error) { return url.Parse(text) }
}

// TestError_NamesCause has the same cause and fix whichever way the connection was made.
func TestError_NamesCause(t *testing.T) {
	guarded := proxytest.Start(t, proxytest.Config{Host: "127.0.0.1", Account: "me:secret"})
	open := proxytest.Start(t, proxytest.Config{Host: "127.0.0.1"})
	for name, test := range map[string]struct {
		set, proxy, want, fix string
		credentials           bool
	}{
		"no credentials":    {"HTTPS_PROXY", "http://" + guarded.Address(), "in HTTPS_PROXY: it requires a user and a password (407", "USER:PASSWORD", true},
		"wrong credentials": {"https_proxy", guarded.URL("me:canary"), `in https_proxy: it does not accept the password of the user "me" (407`, "percent-encode", true},
		"cannot reach it":   {"HTTPS_PROXY", "http://" + open.Address(), "502 Bad Gateway to CONNECT nowhere.invalid:443", "allow CONNECT", false},
		"dead proxy":        {"HTTPS_PROXY", "http://me:canary@127.0.0.1:1", "in HTTPS_PROXY", "NO_PROXY", false},
		"dead SOCKS proxy":  {"HTTPS_PROXY", "socks5://me:canary@127.0.0.1:1", "in HTTPS_PROXY", "NO_PROXY", false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, variable := range []string{"HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"} {
				t.Setenv(variable, "")
			}
			t.Setenv(test.set, test.proxy)
			_, dialed := FromEnvironment().Dial(t.Context(), "nowhere.invalid:443")
			transport := FromEnvironment().Use(&http.Transport{DisableKeepAlives: true})
			_, called := transport.RoundTrip(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "https://nowhere.invalid/", nil))
			for _, err := range []error{dialed, called} {
				failed, ok := Explain(err)
				require.True(t, ok, "%v", err)
				assert.ErrorContains(t, failed, test.want)
				assert.Contains(t, failed.Fix, test.fix)
				assert.Equal(t, test.credentials, failed.Credentials)
				assert.NotContains(t, err.Error()+failed.Error()+failed.Fix, "canary")
			}
		})
	}
}

// The proxies misbehave. The dialler gives up on a silent one once the proxy has its request.
func TestDial_Failures(t *testing.T) {
	gaveUp := errors.New("gave up")
	for name, test := range map[string]struct{ answer, want string }{
		"silent":    {"", gaveUp.Error()},
		"garbage":   {"SSH-2.0-OpenSSH\r\n", "malformed"},
		"refusal":   {"HTTP/1.1 403 Forbidden\r\n\r\n", "403"},
		"talkative": {"HTTP/1.1 200 OK\r\n\r\nand more", "more than its answer"},
		"endless":   {"HTTP/1.1 200 OK\r\nA: " + strings.Repeat("a", 2*maxAnswer) + "\r\n\r\n", "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
			require.NoError(t, err)
			ctx, giveUp := context.WithCancelCause(t.Context())
			defer giveUp(nil)
			done := make(chan struct{})
			go func() {
				defer close(done)
				conn, err := ln.Accept()
				if err != nil {
					return
				}
				_, _ = io.ReadAtLeast(conn, make([]byte, 1), 1)
				if test.answer == "" {
					giveUp(gaveUp)
				}
				_, _ = io.WriteString(conn, test.answer)
				_, _ = io.Copy(io.Discard, conn)
				_ = conn.Close()
			}()
			_, err = through("http://"+ln.Addr().String()).Dial(ctx, "example.test:7000")
			assert.IsType(t, &Error{}, err)
			assert.ErrorContains(t, err, test.want)
			_ = ln.Close()
			await.Closed(t, done, "the end of the proxy's connection")
		})
	}
	_, err := through("ftp://127.0.0.1:1").Dial(t.Context(), "example.test:7000")
	assert.ErrorContains(t, err, "ftp")
}
