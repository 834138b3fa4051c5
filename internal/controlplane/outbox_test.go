package controlplane

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/rabbitmq"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/broker"
)

// listener hears announcements as a Runner does, all that come after listenAs: its
// queue is bound by then.
type listener struct {
	mu     sync.Mutex
	events []announce.Event
	seen   map[string]bool
}

func listenAs(t *testing.T, b broker.Endpoint, runner string) *listener {
	t.Helper()
	l := &listener{seen: map[string]bool{}}
	consumer, err := announce.NewConsumer(announce.ConsumerConfig{
		Config: rabbitmq.Config{URLs: []string{b.URL(broker.UserRunner)}, TLS: b.TLSConfig(), Log: zerolog.Nop()},
		Queue:  rabbitmq.RunnerQueue(runner),
	})
	require.NoError(t, err)
	await.Background(t, "the consumer", func(ctx context.Context) error {
		err := consumer.Run(ctx, func(_ context.Context, e announce.Event) error {
			l.mu.Lock()
			defer l.mu.Unlock()
			if !l.seen[e.ID] { // an event may come again
				l.events = append(l.events, e)
			}
			l.seen[e.ID] = true
			return nil
		})
		if errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	})
	await.Until(t, "the Runner's queue is bound", func() bool { return consumer.Status().Connected })
	return l
}

// heard lists the events in the order in which they came.
func (l *listener) heard() []announce.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.events)
}

func TestBroker_OutageLosesNothing(t *testing.T) {
	t.Parallel()
	b := broker.OwnForTest(t)
	var url atomic.Value // the content of the file
	url.Store(b.URL(broker.UserControlPlane))
	withBroker := func(c *Config) {
		c.BrokerReread = func() ([]string, *tls.Config, error) { return []string{url.Load().(string)}, b.TLSConfig(), nil }
		c.BrokerURLs, c.BrokerTLS, _ = c.BrokerReread()
	}
	// The Runner's queue is bound before the broker goes away. It needs the exchange,
	// which the control plane makes.
	first := start(t, withBroker)
	_, err := first.admin.Runners.Create(t.Context(), "builder", time.Hour, false)
	require.NoError(t, err)
	runner := listenAs(t, b, "builder")
	early := first.registered("early")
	await.Until(t, "the first announcement", func() bool { return len(runner.heard()) > 0 })
	cfg := first.cfg
	require.NoError(t, b.Stop(t.Context()))

	late := first.registered("late")
	_, err = first.admin.Agents.Revoke(t.Context(), early.name)
	require.NoError(t, err)
	require.NoError(t, late.sends(nil, appEvent("1", announce.AppProgressing), appEvent("2", announce.AppHealthy)))
	client := first.client()
	await.Until(t, "readyz says that the broker is down, and that the rest is not", func() bool {
		resp, r := first.call(client, http.MethodGet, "/readyz", ""), readiness{}
		require.NoError(t, json.NewDecoder(resp.Body).Decode(&r))
		return resp.StatusCode == http.StatusOK && r.Checks["outbox"] == "4 announcements wait" && strings.HasPrefix(r.Checks["broker"], "down ")
	})
	detail, err := first.admin.Agents.Get(t.Context(), "late", 10)
	require.NoError(t, err)
	assert.Equal(t, []announce.Type{announce.AgentRegistered, announce.AppProgressing, announce.AppHealthy}, typesOf(detail.Events), "the timeline needs no broker")
	first.stop()
	// The next process starts without a broker, takes the outbox over, and sends when
	// the broker is back.
	second := start(t, func(c *Config) { *c = cfg })
	assert.Len(t, second.queued(), 4)
	require.NoError(t, b.Start(t.Context()))
	await.Until(t, "nothing is lost", func() bool { return len(runner.heard()) >= 5 })

	perAgent := map[string][]announce.Type{}
	last := map[string]uint64{}
	for _, e := range runner.heard() {
		assert.Equal(t, last[e.AgentID], e.Previous, "in order, without gaps")
		last[e.AgentID] = e.Sequence
		perAgent[e.AgentID] = append(perAgent[e.AgentID], e.Type)
	}
	assert.Equal(t, []announce.Type{announce.AgentRegistered, announce.AgentRemoved}, perAgent[early.id.AgentID])
	assert.Equal(t, []announce.Type{announce.AgentRegistered, announce.AppProgressing, announce.AppHealthy}, perAgent[late.id.AgentID])
	await.Until(t, "the outbox is empty", func() bool { return len(second.queued()) == 0 })
	connected, text := second.broker.Check()
	assert.True(t, connected, text)

	const changed = "changed"
	_, err = b.Ctl(t.Context(), "change_password", broker.UserControlPlane, changed)
	require.NoError(t, err)
	url.Store(strings.Replace(b.URL(broker.UserControlPlane), b.Password(broker.UserControlPlane), changed, 1))
	_, err = b.Ctl(t.Context(), "close_all_user_connections", broker.UserControlPlane, "the password has changed")
	require.NoError(t, err)
	_, err = second.admin.Agents.Revoke(t.Context(), late.name)
	require.NoError(t, err)
	await.Until(t, "the new password is used without a restart", func() bool { return len(runner.heard()) >= 6 })
}
