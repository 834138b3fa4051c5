package rabbitmq

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/freeport"
)

func TestRedact_HidesPassword(t *testing.T) {
	for _, url := range []string{
		"amqps://user:s3cret@host:5671/", "amqps://user:s3cr%2Fet@host/vhost", "http://user:s3cret@host/",
		"amqps://user:s3cr/et@host/", "amqps://user:s3cr?et@host/", "amqps://user:s3cr#et@host/", "amqps://user:12/s3cret@host/",
		"amqps://user:x@s3cret@host/", "amqps://user:a@b/s3cret@host", "amqps://user:s3cr%zzet@host/", "amqps://user:s3c ret@host/",
		"amqps://user:s3cret@host:notaport/", "user:s3cret@host", "://user:s3cret@host", "amqps:user:s3cret@host",
		"amqps://host/?password=s3cret",
	} {
		assert.NotContains(t, Redact(url), "s3c", "Redact(%s) =", url)
		_, err := NewLink(Config{URLs: []string{url}})
		assert.True(t, err == nil || !strings.Contains(err.Error(), "s3c"), "NewLink(%s): %v", url, err)
	}
	if got := Redact("amqps://user:s3cret@host:5671/vhost"); got != "amqps://user:xxxxx@host:5671/vhost" {
		t.Errorf("Redact shows too little: %s", got)
	}
}

func TestConfig_RefusesBadURL(t *testing.T) {
	for _, test := range []struct{ url, want string }{
		{"", "amqps://"},
		{"http://host/", "scheme must be amqps"},
		{"amqps://user:%zz@host/", "percent-encoded"},
	} {
		if _, err := NewLink(Config{URLs: []string{test.url}}); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q: %v, want %q", test.url, err, test.want)
		}
	}
	_, err := NewLink(Config{})
	assert.Error(t, err, "no URL is fine")
}

func TestConfig_BrokerAddress(t *testing.T) {
	for url, want := range map[string]string{
		"amqps://user:x@mq.example.com/":      "mq.example.com:5671",
		"amqps://user:x@[2001:db8::1]/":       "[2001:db8::1]:5671",
		"amqps://user:x@[2001:db8::1]:5670/v": "[2001:db8::1]:5670",
	} {
		brokers, err := parseBrokers([]string{url})
		require.NoError(t, err)
		assert.Equal(t, want, brokers[0].addr, "%s: %v", url, brokers)
	}
}

func TestDialError_HasFix(t *testing.T) {
	tests := []struct {
		err  error
		code Code
		want string
	}{
		{amqp.ErrCredentials, CodeBadLogin, "password"},
		{&amqp.Error{Code: amqp.NotAllowed, Reason: "no access to vhost"}, CodeForbidden, "virtual host"},
		{x509.UnknownAuthorityError{}, CodeUntrusted, "another CA"},
		{x509.HostnameError{Certificate: &x509.Certificate{}, Host: "h"}, CodeUntrusted, "other names"},
		{&net.OpError{Op: "dial", Err: errors.New("refused")}, CodeUnreachable, "firewall"},
		{context.DeadlineExceeded, CodeUnreachable, "firewall"},
		{io.EOF, CodeUnreachable, "AMQP port"},
	}
	for _, test := range tests {
		err := dialError("user", "host:5671", test.err)
		if CodeOf(err) != test.code || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "host:5671") {
			t.Errorf("%v: code %s", err, CodeOf(err))
		}
		assert.True(t, errors.Is(err, test.err) || test.code == CodeUntrusted, "%v lost its cause", err)
	}
}

// The peer accepts and is silent. The handshake's own timeout is an hour here.
func TestLink_EndsOnSilentBroker(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	l, err := NewLink(Config{
		URLs: []string{"amqp://u:p@" + listener.Addr().String() + "/"}, Log: zerolog.Nop(), dialTimeout: time.Hour,
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx, func(context.Context, *Connection) error { return nil }) }()
	conn, err := listener.Accept()
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	cancel()
	assert.ErrorIs(t, await.Receive(t, ended, "the end of Run"), context.Canceled)
	assert.False(t, l.Status().Connected, "connected to a silent peer")
}

// Where nobody listens the pauses stay short; where a broker refuses they grow.
func TestBackoff_ShortWhileDown(t *testing.T) {
	l, err := NewLink(Config{URLs: []string{"amqp://u:p@" + freeport.Address(t) + "/"}, Log: zerolog.Nop()})
	require.NoError(t, err)
	down := once(t.Context(), &l.brokers[0], &l.cfg, nil)
	require.Equal(t, CodeUnreachable, CodeOf(down), down)
	refused, unwanted := NewBackoff(), NewBackoff()
	for range 10 {
		assert.LessOrEqual(t, nextPause(refused, down), refusedPause)
		nextPause(unwanted, &Error{Op: "log in", Code: CodeBadLogin, Err: errors.New("no")})
	}
	pause := unwanted.NextBackOff()
	assert.True(t, pause >= maxPause/2, "the pause after ten refused logins is %s, want %s", pause, maxPause)
}
