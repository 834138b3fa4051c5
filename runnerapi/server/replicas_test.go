package server_test

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnertest"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
)

// ill is a replica that is connected and of no use: its API server is away.
type ill struct {
	backend.Apps
	asked atomic.Int64
}

func (b *ill) Get(context.Context, runnerapi.Key) (runnerapi.App, error) {
	b.asked.Add(1)
	return runnerapi.App{}, problem.Errorf(problem.Unavailable, "wait", "the cluster does not answer")
}

// takeTurns passes connections on to the addresses in turn, as the control plane does.
func takeTurns(t *testing.T, addresses ...string) string {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var all sync.WaitGroup
	all.Go(func() {
		for n := 0; ; n++ {
			near, err := ln.Accept()
			if err != nil {
				return
			}
			far, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", addresses[n%len(addresses)])
			if err != nil {
				_ = near.Close()
				continue
			}
			for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
				all.Go(func() {
					_, _ = io.Copy(way[0], way[1])
					_, _ = near.Close(), far.Close()
				})
			}
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		all.Wait()
	})
	return ln.Addr().String()
}

// Of two replicas, one answers that its cluster is away: the next try goes to the other.
func TestClient_SkipsUnhealthyReplica(t *testing.T) {
	agent := runnertest.Start(t, runnertest.NewBackend())
	sick := &ill{Apps: agent.Backend.Apps()}
	config := agent.ClientConfig()
	config.EdgeAddresses = []string{takeTurns(t, serveTLS(t, agent, sick).address, agent.Address)}
	config.Patience = time.Minute
	key := runnerapi.Key{Namespace: "production", Name: "web"}
	_, err := agent.Client().Apps().Deploy(t.Context(), key, runnerapi.AppSpec{Image: "example.com/web:1"}, runnerapi.WriteOptions{})
	require.NoError(t, err)

	client, err := client.New(config)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	for range 3 {
		_, err := client.Apps().Get(t.Context(), key)
		require.NoError(t, err)
	}
	assert.EqualValues(t, 1, sick.asked.Load(), "the connection to the other one is kept")
}
