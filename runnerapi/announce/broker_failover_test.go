package announce_test

import (
	"net"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/rabbitmq"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/broker"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// Two brokers die in turn. Each time the publisher and the consumer go on at the other.
func TestBrokers_Failover(t *testing.T) {
	suite.Release(t, "brokers and receivers that die again and again")
	t.Parallel()
	both := []*broker.Broker{broker.OwnForTest(t), broker.OwnForTest(t)}
	brokers, urls := map[string]*broker.Broker{}, map[string][]string{}
	tls := both[0].TLSConfig()
	tls.RootCAs = tls.RootCAs.Clone()
	for _, b := range both {
		brokers[net.JoinHostPort("127.0.0.1", strconv.Itoa(b.Port()))] = b
		for _, user := range []string{broker.UserControlPlane, broker.UserRunner} {
			urls[user] = append(urls[user], b.URL(user))
		}
		if pem, err := os.ReadFile(b.CAFile()); err != nil || !tls.RootCAs.AppendCertsFromPEM(pem) {
			t.Fatal("no CA: ", err)
		}
	}
	cfg := func(user string) rabbitmq.Config {
		return rabbitmq.Config{URLs: urls[user], TLS: tls, Log: zerolog.Nop()}
	}
	p := publisher(t, cfg(broker.UserControlPlane))
	announced(t, p, makeEvents(t, "warm", 1, 1)) // the topology is at one of them
	got, c, _ := consume(t, cfg(broker.UserRunner), rabbitmq.RunnerQueue("order"))
	sequence, visited := uint64(0), map[string]bool{}
	for round := range 2 {
		at := p.Status().Broker
		visited[at] = true
		// RabbitMQ 3.10 notes a new quorum queue late: docs/adr/0045-one-reader-at-a-time.md.
		_, err := brokers[at].Ctl(t.Context(), "eval", "dets:sync(ra_directory_reverse).")
		require.NoError(t, err)
		require.NoError(t, brokers[at].Kill())
		await.Until(t, "the publisher to be at the other", func() bool { return p.Connected() && p.Status().Broker != at })
		await.Until(t, "the consumer to be at the other", func() bool {
			s := c.Status()
			return s.Connected && s.Broker == p.Status().Broker
		})
		sequence++
		announced(t, p, makeEvents(t, "moving", sequence, sequence))
		got.until(t, "the announcement at the other", func(e []announce.Event) bool {
			n := sequences(e, "moving")
			return len(n) > 0 && n[len(n)-1] == sequence
		})
		if round > 0 {
			break
		}
		require.NoError(t, brokers[at].Start(t.Context()))
	}
	assert.Len(t, visited, 2)
}
