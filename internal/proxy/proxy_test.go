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
		final                 bool
	}{
		"no credentials":    {"HTTPS_PROXY", "http://" + guarded.Address(), "in HTTPS_PROXY: it requires a user and a password (407", "USER:PASSWORD", true},
		"wrong credentials": {"https_proxy", guarded.URL("me:canary"), `in https_proxy: it does not accept the password of the user "me" (407`, "percent-encode", true},
		"cannot reach it":   {"HTTPS_PROXY", "http://" + open.Address(), "502 Bad Gateway to CONNECT nowhere.invalid:443", "allow CONNECT", false},
		"dead proxy":        {"HTTPS_PROXY", "http://me:canary@127.0.0.1:1", "in HTTPS_PROXY", "NO_PROXY", false},
		"no kind":           {"HTTPS_PROXY", "htps://me:canary@proxy:3128", `HTTPS_PROXY is malformed: proxies of the kind "htps"`, "set HTTPS_PROXY to http://HOST:PORT", true},
		"no port":           {"https_proxy", "proxy:port", "https_proxy is malformed: it is not a URL", "set https_proxy to http://HOST:PORT", true},
		"large port":        {"HTTPS_PROXY", "http://me:canary@proxy:99999", `"99999" is not a port`, "set HTTPS_PROXY", true},
		"no host":           {"HTTPS_PROXY", "http://:3128", "it names no host", "set HTTPS_PROXY", true},
		"password":          {"HTTPS_PROXY", "http://me:can ary%canary@proxy:3128", "HTTPS_PROXY is malformed: it is not a URL", "percent-encode", true},
		"list with spaces":  {"NO_PROXY", "localhost 10.0.0.0/8", `NO_PROXY is malformed: "localhost 10.0.0.0/8" is not one host`, "separated by commas", true},
		"list with a URL":   {"no_proxy", "a.example.com,https://b.example.com", `no_proxy is malformed: "https://b.example.com" is a URL`, "set no_proxy to hosts", true},
		"list with a range": {"NO_PROXY", "10.0.0.0/33", `"10.0.0.0/33" is not a range of addresses`, "set NO_PROXY", true},
		"dead SOCKS proxy":  {"HTTPS_PROXY", "socks5://me:canary@127.0.0.1:1", "in HTTPS_PROXY", "NO_PROXY", false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, variable := range []string{"HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"} {
				t.Setenv(variable, "")
			}
			if strings.EqualFold(test.set, "NO_PROXY") {
				t.Setenv("HTTPS_PROXY", "http://"+open.Address())
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
				assert.Equal(t, test.final, failed.Final)
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

// TestFromEnvironment_MalformedForOthers: a malformed variable stops no connection that needs no
// proxy.
func TestFromEnvironment_MalformedForOthers(t *testing.T) {
	t.Setenv("https_proxy", "htps://proxy")
	t.Setenv("HTTP_PROXY", "proxy.example.com:3128")
	t.Setenv("no_proxy", ".internal, 10.0.0.0/8,[::1],*.svc,a.example.com:8443")
	f := FromEnvironment()
	for to, want := range map[string]string{
		"https://127.0.0.1:1": "", "https://localhost": "", "https://a.internal": "", "https://10.1.2.3": "",
		"http://a.example.com": "http://proxy.example.com:3128",
	} {
		u, err := url.Parse(to)
		require.NoError(t, err)
		via, err := f(u)
		require.NoError(t, err, to)
		if want == "" {
			assert.Nil(t, via, to)
		} else {
			assert.Equal(t, want, via.String())
		}
	}
	_, err := f(&url.URL{Scheme: "https", Host: "b.example.com"})
	require.ErrorContains(t, err, "https_proxy is malformed")
}
