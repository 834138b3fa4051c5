package server_test

import (
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnertest"
)

// breakingWire forwards to the agent, and breaks the first connections when so many bytes
// of answers have come.
func breakingWire(t *testing.T, to string, breaks int32, after int64) (address string, broken *atomic.Int32) {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	broken = &atomic.Int32{}
	var all sync.WaitGroup
	t.Cleanup(func() {
		_ = ln.Close()
		all.Wait()
	})
	all.Go(func() {
		for {
			near, err := ln.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			if err != nil {
				_ = near.Close()
				continue
			}
			all.Go(func() { _, _ = io.Copy(far, near); _ = far.Close() })
			all.Go(func() {
				if broken.Load() < breaks {
					if _, err := io.CopyN(near, far, after); err == nil {
						broken.Add(1)
					}
				} else {
					_, _ = io.Copy(near, far)
				}
				_, _ = near.Close(), far.Close()
			})
		}
	})
	return ln.Addr().String(), broken
}

// Connections break in the middle of a large response.
func TestClient_RetriesBrokenResponse(t *testing.T) {
	t.Parallel()
	agent := runnertest.Start(t, runnertest.NewBackend())
	ctx := ctxFor(t)
	value := strings.Repeat("0123456789abcdef", 32<<10) // 512 KiB
	config := agent.ClientConfig()
	address, broken := breakingWire(t, agent.Address, 3, 200<<10)
	config.EdgeAddresses = []string{address}
	c, err := client.New(config)
	require.NoError(t, err)
	defer c.Close()

	key := runnerapi.Key{Namespace: "production", Name: "large"}
	spec := runnerapi.ConfigMapSpec{Data: map[string]string{"large": value}}
	_, err = agent.Client().ConfigMaps().Set(ctx, key, spec, runnerapi.WriteOptions{})
	require.NoError(t, err)
	got, err := c.ConfigMaps().Get(ctx, key)
	require.NoError(t, err)
	assert.Equal(t, value, got.Data["large"])
	assert.EqualValues(t, 3, broken.Load(), "it was tried again as often as it broke")
	for range 3 { // over what is whole now
		_, err = c.ConfigMaps().Get(ctx, key)
		require.NoError(t, err)
	}
}
