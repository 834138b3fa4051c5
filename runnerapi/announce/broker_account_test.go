package announce_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/publish"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/rabbitmq"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/broker"
	"github.com/pipeops/pipeops-vm-agent/test/logbook"
	"github.com/pipeops/pipeops-vm-agent/test/proxytest"
)

// TestBroker_ThroughProxy has a broker that nothing but the proxy reaches.
func TestBroker_ThroughProxy(t *testing.T) {
	const at = "broker.invalid:5671"
	b := rabbit.VHost(t)
	via := proxytest.Start(t, proxytest.Config{Host: "127.0.0.1", Account: "me:secret", Sites: map[string]string{at: b.Address()}})
	cfg := config(b, broker.UserRunner)
	cfg.URLs, cfg.TLS.ServerName = []string{b.URLAt(broker.UserRunner, at)}, "localhost"
	link, err := rabbitmq.NewLink(cfg)
	require.NoError(t, err)
	t.Setenv("HTTPS_PROXY", via.URL("me:secret"))
	conn, err := link.Dial(t.Context())
	require.NoError(t, err)
	conn.Shutdown()
	assert.Equal(t, []string{at}, via.Asked())
	t.Setenv("HTTPS_PROXY", "http://"+via.Address())
	_, err = link.Dial(t.Context())
	assert.Equal(t, rabbitmq.CodeUnreachable, rabbitmq.CodeOf(err))
	assert.ErrorContains(t, err, "the proxy http://"+via.Address()+" in HTTPS_PROXY: it requires a user and a password")
	assert.ErrorContains(t, err, "(fix: set HTTPS_PROXY=")
}

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
	wantRefused(t, b, b.URL(broker.UserRunner), map[string]func(*amqp.Channel) error{
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
		"read the dead letters": func(ch *amqp.Channel) error {
			_, err := ch.Consume(rabbitmq.DeadQueue, "", false, false, false, false, nil)
			return err
		},
		"delete the exchange": func(ch *amqp.Channel) error { return ch.ExchangeDelete(rabbitmq.Exchange, false, false) },
		"make another queue": func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare("pipeops.other", true, false, false, false, nil)
			return err
		},
	})
}

// wantRefused tries what an account must not do.
func wantRefused(t *testing.T, b broker.Endpoint, url string, tries map[string]func(*amqp.Channel) error) {
	t.Helper()
	conn, err := amqp.DialTLS(url, b.TLSConfig())
	require.NoError(t, err)
	defer func() { _ = conn.CloseDeadline(time.Now().Add(5 * time.Second)) }()
	for name, try := range tries {
		ch, err := conn.Channel()
		require.NoError(t, err)
		var refused *amqp.Error
		require.ErrorAs(t, try(ch), &refused, name)
		assert.Equal(t, amqp.AccessRefused, refused.Code, name)
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

// forRunner addresses events to one Runner.
func forRunner(runner string, events []announce.Event) []announce.Event {
	for i := range events {
		events[i].Runners = []string{runner}
	}
	return events
}

func TestAnnouncements_OnlyForRunner(t *testing.T) {
	t.Parallel()
	b := rabbit.VHost(t)
	p := publisher(t, config(b, broker.UserControlPlane))
	mine, _, ready := consume(t, config(b, broker.UserRunner), rabbitmq.RunnerQueue("mine"))
	theirs, _, theirsReady := consume(t, config(b, broker.UserRunner), rabbitmq.RunnerWatchQueue("theirs", "1"))
	await.Receive(t, ready, "the queue")
	await.Receive(t, theirsReady, "the other queue")
	announced(t, p, forRunner("mine", makeEvents(t, "secret", 1, 3)))
	announced(t, p, forRunner("nobody", makeEvents(t, "secret", 4, 4)))
	last := makeEvents(t, "secret", 5, 5)
	last[0].Runners = []string{"theirs", "mine"}
	announced(t, p, last)
	events := mine.until(t, "the last one", func(e []announce.Event) bool { return len(e) > 3 })
	got := sequences(events, "secret")
	assert.True(t, len(got) == 4 && got[3] == 5, "got %v", got)
	events = theirs.until(t, "the last one", func(e []announce.Event) bool { return len(e) > 0 })
	got = sequences(events, "secret")
	assert.True(t, len(got) == 1 && got[0] == 5, "the other Runner got %v", got)
}

// asDocumented makes an account for a Runner by the commands of docs/operator/runners.md.
func asDocumented(t *testing.T, b *broker.VHost, runner, password string) string {
	t.Helper()
	doc, err := os.ReadFile("../../docs/operator/runners.md")
	require.NoError(t, err)
	var script bytes.Buffer
	script.WriteString(`rabbitmqctl() { printf '%s\0' "$@"; echo; }; NAME=` + runner + " PASSWORD=\n")
	commands := 0
	for line := range strings.Lines(string(doc)) {
		if !strings.HasPrefix(line, "```") && strings.Contains(line, "rabbitmqctl ") && !strings.Contains(line, "`rabbitmqctl") {
			script.WriteString(line)
			commands++
		}
	}
	out, err := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script.String()).Output()
	require.NoError(t, err)
	require.Equal(t, 3, commands, "%d commands: %v\n%s", commands, err, script.String())
	for line := range strings.Lines(string(out)) {
		args := strings.Split(strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\x00"), "\x00")
		if args[0] == "add_user" { // which the document has read it from standard input
			args = append(args, password)
		} else { // the document's are for "/"
			args = append([]string{args[0], "--vhost", b.Name()}, args[1:]...)
		}
		if out, err := b.Ctl(t.Context(), args...); err != nil {
			t.Fatalf("rabbitmqctl %s: %v\n%s", args[0], err, out)
		}
	}
	u, err := url.Parse(b.URL(broker.UserRunner))
	require.NoError(t, err)
	u.User = url.UserPassword("runner-"+runner, password)
	return u.String()
}

func TestBrokerAccount_OwnQueuesOnly(t *testing.T) {
	t.Parallel()
	b := rabbit.VHost(t)
	p := publisher(t, config(b, broker.UserControlPlane))
	announced(t, p, makeEvents(t, "before", 1, 1)) // the exchange is there
	_, err := rabbitmq.DeclareQueue(broker.Channel(t, b, broker.UserControlPlane), rabbitmq.RunnerQueue("mine"))
	require.NoError(t, err)
	shops := "shops-" + b.Name() // virtual hosts share users
	own := config(b, broker.UserRunner)
	own.URLs = []string{asDocumented(t, b, shops, "a-password-of-this-test")}
	for name, q := range map[string]rabbitmq.Queue{"durable": rabbitmq.RunnerQueue(shops), "aside": rabbitmq.RunnerWatchQueue(shops, "1")} {
		t.Run("gets its own, "+name, func(t *testing.T) {
			got, _, ready := consume(t, own, q)
			await.Receive(t, ready, "the queue")
			announced(t, p, forRunner(shops, makeEvents(t, "granted", 1, 1)))
			got.until(t, "the announcement", func(e []announce.Event) bool { return len(sequences(e, "granted")) == 1 })
		})
	}
	bind := func(key string) func(*amqp.Channel) error {
		return func(ch *amqp.Channel) error {
			return ch.QueueBind("pipeops.runner."+shops, key, rabbitmq.Exchange, false, nil)
		}
	}
	wantRefused(t, b, own.URLs[0], map[string]func(*amqp.Channel) error{
		"bind all": bind("#"), "bind a type": bind("agent.online"), "bind another Runner's": bind("to.mine.#"), "bind any Runner's": bind("to.*.agent.online"),
		"read another Runner's queue": func(ch *amqp.Channel) error {
			_, err := ch.Consume("pipeops.runner.mine", "", false, false, false, false, nil)
			return err
		},
		"bind its exchange": func(ch *amqp.Channel) error {
			if err := ch.ExchangeDeclare("pipeops.runner."+shops+".tap", "fanout", false, true, false, false, nil); err != nil {
				return err
			}
			return ch.ExchangeBind("pipeops.runner."+shops+".tap", "#", rabbitmq.Exchange, false, nil)
		},
	})
}
