package controlplane

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/test/broker"
	"github.com/pipeops/pipeops-vm-agent/test/postgres"
)

// BenchmarkOutboxToBroker is the way of an announcement from the database to a
// confirmed place in a quorum queue: 10 000 events of 500 agents, for three Runners.
func BenchmarkOutboxToBroker(b *testing.B) {
	at := rabbit.VHost(b)
	s := newStore(b, postgres.Chosen(b))
	const agents, each = 500, 20
	fleet := fillFleet(b, s, agents)
	publisher, err := announce.NewPublisher(announce.Config{
		URLs: []string{at.URL(broker.UserControlPlane)}, TLS: at.TLSConfig(), Log: zerolog.Nop(),
	})
	require.NoError(b, err)
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 2)
	go func() { ended <- publisher.Run(ctx) }()
	require.Eventually(b, publisher.Connected, time.Minute, 10*time.Millisecond)
	a := &announcer{store: s, publisher: publisher, log: zerolog.Nop(), pause: time.Second, now: time.Now}
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

func fillFleet(b testing.TB, s *store.Store, agents int) []store.Agent {
	b.Helper()
	fleet := make([]store.Agent, agents)
	require.NoError(b, s.Update(b.Context(), func(tx *store.Tx) error {
		for i := range fleet {
			id := fmt.Sprintf("agent-%04d", i)
			fleet[i] = store.Agent{ID: id, Name: id, ClusterUID: id, State: announce.StateOnline, EdgeAddress: "e:1", Labels: map[string]string{"env": "prod"}}
			if err := tx.InsertAgent(b.Context(), fleet[i]); err != nil {
				return err
			}
		}
		for _, name := range []string{"ci", "builder", "portal"} {
			err := tx.PutRunner(b.Context(), store.Runner{Name: name, Serial: name, Agents: "env=prod", CreatedAt: time.Now(), ExpiresAt: time.Now().Add(time.Hour)})
			if err != nil {
				return err
			}
		}
		return nil
	}))
	return fleet
}

func fillOutbox(b testing.TB, s *store.Store, fleet []store.Agent, each int) {
	b.Helper()
	for range each {
		require.NoError(b, s.Update(b.Context(), func(tx *store.Tx) error {
			for _, a := range fleet {
				if err := (directory{agentsDomain: "d"}).write(b.Context(), tx, announce.AgentUpdated, a, time.Now()); err != nil {
					return err
				}
			}
			return nil
		}))
	}
}
