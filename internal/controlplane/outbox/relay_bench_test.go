package outbox

import (
	"context"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/directory"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/publish"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/rabbitmq"
	"github.com/pipeops/pipeops-vm-agent/test/broker"
	"github.com/pipeops/pipeops-vm-agent/test/postgres"
	"github.com/pipeops/pipeops-vm-agent/test/storetest"
)

// BenchmarkOutboxToBroker is the way of an announcement from the database to a
// confirmed place in a quorum queue: 10 000 events of 500 agents, for three Runners.
func BenchmarkOutboxToBroker(b *testing.B) {
	at := rabbit.VHost(b)
	s := storetest.Open(b, &databases, postgres.Chosen(b))
	const agents, each = 500, 20
	fleet := storetest.Fill(b, s, agents)
	publisher, err := publish.New(rabbitmq.Config{
		URLs: []string{at.URL(broker.UserControlPlane)}, TLS: at.TLSConfig(), Log: zerolog.Nop(),
	})
	require.NoError(b, err)
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 2)
	go func() { ended <- publisher.Run(ctx) }()
	require.Eventually(b, publisher.Connected, time.Minute, 10*time.Millisecond)
	a := &relay{store: s, publisher: publisher, log: zerolog.Nop(), pause: time.Second, now: time.Now}
	b.ResetTimer()
	for range b.N {
		b.StopTimer()
		fillOutbox(b, s, fleet, each)
		b.StartTimer()
		for more := true; more; {
			more, err = a.batch(ctx)
			require.NoError(b, err)
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N*agents*each)/b.Elapsed().Seconds(), "events/s")
	cancel()
	<-ended
}

func fillOutbox(b testing.TB, s *store.Store, fleet []store.Agent, each int) {
	b.Helper()
	for range each {
		require.NoError(b, s.Update(b.Context(), func(tx *store.Tx) error {
			for _, a := range fleet {
				if err := (directory.Directory{AgentsDomain: "d"}).Write(b.Context(), tx, announce.AgentUpdated, a, time.Now()); err != nil {
					return err
				}
			}
			return nil
		}))
	}
}
