package webhook

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/tlsfiles"
)

func TestWebhook_SignsLikeSpec(t *testing.T) {
	got, err := sign([]string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	require.NoError(t, err)
	assert.Equal(t, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", got)
	_, err = sign([]string{"whsec_not base64"}, "1", time.Now(), nil)
	require.Error(t, err)
	assert.NotContains(t, err.Error(), "not base64")
	assert.NotEqual(t, NewSecret(), NewSecret())
}

func TestWebhook_RefusesAddresses(t *testing.T) {
	for address, want := range map[string][3]bool{ // by default, --allow-private, --allow-http
		"93.184.215.14": {true, true, false}, "2606:2800:21f:cb07:6820:80da:af6b:8b2c": {true, true, false},
		"10.1.2.3": {false, true, false}, "172.31.0.1": {false, true, false}, "192.168.1.1": {false, true, false}, "100.64.0.1": {false, true, false},
		"fd12::1": {false, true, false}, "127.0.0.1": {false, true, true}, "::1": {false, true, true}, "::ffff:127.0.0.1": {false, true, true},
		"::ffff:10.0.0.1": {false, true, false}, "64:ff9b::a00:1": {false, true, false}, "64:ff9b::5db8:d70e": {true, true, false},
		"2002:a00:1::": {false, true, false}, "169.254.169.254": {}, "fe80::1": {}, "fe80::1%eth0": {}, "fd00:ec2::254": {}, "100.100.100.200": {},
		"168.63.129.16": {}, "::ffff:169.254.169.254": {}, "64:ff9b::a9fe:a9fe": {}, "0.0.0.0": {}, "::": {}, "224.0.0.1": {}, "ff02::1": {}, "255.255.255.255": {},
	} {
		for i, g := range []guard{{}, {allowPrivate: true}, {loopbackOnly: true}} {
			err := g.check(netip.MustParseAddr(address))
			assert.Equal(t, want[i], err == nil, "%s, %+v: %v", address, g, err)
		}
	}
}

// TestWebhook_ChecksDialedAddress resolves a name only when it is dialed.
func TestWebhook_ChecksDialedAddress(t *testing.T) {
	r := newReceiver(t)
	for _, host := range []string{"localhost", "127.0.0.1"} {
		s := NewSender(store.Webhook{URL: strings.Replace(r.URL, "127.0.0.1", host, 1), Secret: r.secret}, Options{})
		err := s.Send(t.Context(), "1", []byte("{}")).Err
		require.ErrorContains(t, err, "private address")
		s.Close()
	}
	assert.Zero(t, r.called())
}

func TestWebhook_HTTPLoopbackOnly(t *testing.T) {
	called := 0
	plain := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { called++ }))
	defer plain.Close()
	s := NewSender(store.Webhook{URL: plain.URL, AllowHTTP: true, Secret: NewSecret()}, Options{})
	defer s.Close()
	assert.NoError(t, s.Send(t.Context(), "1", []byte("{}")).Err)
	assert.Equal(t, 1, called)
	require.ErrorContains(t, guard{loopbackOnly: true}.control("tcp", "93.184.215.14:80", nil), "not this machine")
}

func TestWebhook_HostileReceivers(t *testing.T) {
	w, victim := newWorld(t), newReceiver(t)
	r := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		switch req.URL.Path {
		case "/redirect":
			http.Redirect(rw, req, victim.URL, http.StatusTemporaryRedirect)
		case "/endless":
			for {
				if _, err := io.WriteString(rw, strings.Repeat("x", 1<<16)); err != nil {
					return
				}
			}
		case "/header":
			rw.Header().Set("X-Large", strings.Repeat("x", 1<<20))
		}
	}))
	defer r.Close()
	w.roots.AddCert(r.Certificate())
	w.roots.AddCert(victim.Certificate())
	for path, want := range map[string]string{"/redirect": "redirects are not followed", "/endless": "", "/header": "header"} {
		s := NewSender(store.Webhook{URL: r.URL + path, AllowPrivate: true, Secret: NewSecret()}, Options{TLS: tlsfiles.Fixed(w.roots)})
		err := s.Send(t.Context(), "1", []byte("{}")).Err
		s.Close()
		if want == "" {
			require.NoError(t, err, path)
		} else {
			require.ErrorContains(t, err, want, path)
		}
	}
	assert.Zero(t, victim.called())
}

func TestWebhook_CheckURL(t *testing.T) {
	for text, why := range map[string]string{
		"https://hooks.example.com/x?y=z": "", "http://localhost:8080/x": "--allow-http", "ftp://x/": "not https", "hooks.example.com": "not a URL",
		"https://user:hush@example.com/": "password", "https:///x": "not a URL", "https://x/#y": "fragment",
		"https://10.0.0.1/": "--allow-private", "https://[fe80::1]/": "link-local", "https://93.184.215.14/": "",
	} {
		err := CheckURL(text, false, false)
		if why == "" {
			require.NoError(t, err, text)
			continue
		}
		require.ErrorContains(t, err, why, text)
		assert.NotContains(t, err.Error(), "hush")
	}
	assert.NoError(t, CheckURL("http://localhost:8080/x", true, false))
	assert.NoError(t, CheckURL("http://127.0.0.1/x", true, false))
	assert.NoError(t, CheckURL("https://10.0.0.1/x", false, true))
	require.ErrorContains(t, CheckURL("http://10.0.0.1/x", true, false), "--url: 10.0.0.1 is not this machine")
	require.ErrorContains(t, CheckURL("HTTP://10.0.0.1/x", true, true), "--url: 10.0.0.1 is not this machine")
	require.ErrorContains(t, CheckTypes([]string{"app.failed", "app.fail"}), "app.degraded")
	assert.NoError(t, CheckTypes([]string{"agent.*", "app.failed"}))
}
