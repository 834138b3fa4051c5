package announce_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/publish"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/rabbitmq"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/broker"
	"github.com/pipeops/pipeops-vm-agent/test/logbook"
)

func TestPublish_RefusedForRunner(t *testing.T) {
	t.Parallel()
	b := rabbit.VHost(t)
	p := publisher(t, config(b, broker.UserRunner))
	err := refused(t, p, rabbitmq.CodeForbidden)
	assert.ErrorContains(t, err, "control plane's user")
}

// refused publishes with no hope, once the publisher knows that, and returns why.
func refused(t *testing.T, p *publish.Publisher, code rabbitmq.Code) error {
	t.Helper()
	await.Until(t, "the refusal", func() bool { return rabbitmq.CodeOf(p.Status().Err) == code })
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	n, err := p.Publish(ctx, encoded(t, makeEvents(t, "forged", 1, 1)))
	assert.True(t, n == 0 && rabbitmq.CodeOf(err) == code, "Publish = %d, %v, want %s", n, err, code)
	t.Log(err)
	return err
}

// Bypasses our own code: the broker itself must refuse.
func TestBrokerAccount_ConfinedToQueues(t *testing.T) {
	t.Parallel()
	b := rabbit.VHost(t)
	announced(t, publisher(t, config(b, broker.UserControlPlane)), makeEvents(t, "before", 1, 1))
	conn, err := amqp.DialTLS(b.URL(broker.UserRunner), b.TLSConfig())
	require.NoError(t, err)
	defer func() { _ = conn.CloseDeadline(time.Now().Add(5 * time.Second)) }()
	tries := map[string]func(*amqp.Channel) error{
		"publish": func(ch *amqp.Channel) error {
			if err := ch.Confirm(false); err != nil {
				return err
			}
			closed := ch.NotifyClose(make(chan *amqp.Error, 1))
			err := ch.PublishWithContext(t.Context(), rabbitmq.Exchange, "agent.online", false, false, amqp.Publishing{})
			if err != nil {
				return err
			}
			return await.Receive(t, closed, "the refusal")
		},
		"read the timeline": func(ch *amqp.Channel) error {
			_, err := ch.Consume(rabbitmq.TimelineQueue, "", false, false, false, false, nil)
			return err
		},
		"delete the exchange": func(ch *amqp.Channel) error { return ch.ExchangeDelete(rabbitmq.Exchange, false, false) },
		"make another queue": func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare("pipeops.other", true, false, false, false, nil)
			return err
		},
	}
	for name, try := range tries {
		ch, err := conn.Channel()
		require.NoError(t, err)
		var refused *amqp.Error
		if err := try(ch); !errors.As(err, &refused) || refused.Code != amqp.AccessRefused {
			t.Errorf("%s: %v, want it refused", name, err)
		}
	}
}

func TestConsumer_HidesPassword(t *testing.T) {
	t.Parallel()
	b := rabbit.VHost(t)
	u, err := url.Parse(b.URL(broker.UserRunner))
	require.NoError(t, err)
	const wrong = "wr0ng/?#@secret"
	u.User = url.UserPassword(broker.UserRunner, wrong)
	cfg := config(b, broker.UserRunner)
	var log logbook.Book
	cfg.URLs, cfg.Log = []string{u.String()}, zerolog.New(&log)
	_, c, _ := consume(t, cfg, rabbitmq.RunnerQueue("x"))
	await.Until(t, "the refusal", func() bool { return rabbitmq.CodeOf(c.Status().Err) == rabbitmq.CodeBadLogin })
	text := c.Status().Err.Error()
	if !strings.Contains(text, "log in as runner") || !strings.Contains(text, "check the user and password") {
		t.Errorf("not clear: %s", text)
	}
	for _, secret := range []string{wrong, "secret", url.QueryEscape(wrong)} {
		if strings.Contains(text, secret) || strings.Contains(log.String(), secret) {
			t.Errorf("shows the password:\n%s\n%s", text, log.String())
		}
	}
	assert.NotEmpty(t, log.String(), "nothing was logged")
}

func TestPublish_RefusesOtherCA(t *testing.T) {
	t.Parallel()
	b := rabbit.VHost(t)
	cfg := config(b, broker.UserControlPlane)
	cfg.TLS = &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	err := refused(t, publisher(t, cfg), rabbitmq.CodeUntrusted)
	assert.ErrorContains(t, err, "--broker-ca")
}
