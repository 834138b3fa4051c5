package server_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/logbook"
	"github.com/pipeops/pipeops-vm-agent/tunnel"
	"github.com/pipeops/pipeops-vm-agent/tunnel/server"
)

// All agents come back in the time that they were given.
func TestRestart_Announced(t *testing.T) {
	const agents = 30
	first := newPlane(t, func(c *server.Config) { c.Limits.GoAway = patience })
	told := &logbook.Book{}
	var all []*agent
	for i := range agents {
		all = append(all, first.bareAgent(fmt.Sprintf("a%d", i), func(c *tunnel.Config) {
			c.Log, c.Backoff = zerolog.New(told), tunnel.Backoff{Initial: 500 * time.Millisecond, Max: time.Second}
		}))
	}
	await.Until(t, "all are online", func() bool { return first.Stats().Agents == agents })
	for _, a := range all { // an agent hears of it a little later than the server
		await.Until(t, "it knows", func() bool { return a.Status().Phase == tunnel.Connected })
	}
	first.stop()
	await.Until(t, "all were told", func() bool { return told.Count("the control plane restarts") == agents })
	second := startPlane(t, first.ca, first.addr)
	await.Until(t, "all are back", func() bool { return second.Stats().Agents == agents })
	for _, a := range all {
		await.Until(t, "it has reconnected once", func() bool { return a.Status().Reconnects == 1 })
	}
}

// They are let in when they come again.
func TestBusy_SendsAgentsAway(t *testing.T) {
	const busy, agents = 10, 10 // so that the agents alone are never too many
	release := make(chan struct{})
	p := newPlane(t, func(c *server.Config) {
		c.Limits.Busy = busy
		c.Authorize = func(ctx context.Context, id string) error {
			if strings.HasPrefix(id, "slow") { // on its way for as long as the test wants
				select {
				case <-release:
				case <-ctx.Done():
				}
			}
			return nil
		}
	})
	for i := range busy {
		p.bareAgent(fmt.Sprintf("slow%d", i))
	}
	await.Until(t, "they are on their way", func() bool { return p.Stats().Sessions == busy })
	sent := &logbook.Book{}
	for i := range agents {
		p.bareAgent(fmt.Sprintf("a%d", i), func(c *tunnel.Config) { c.Log = zerolog.New(sent) })
	}
	await.Until(t, "all were sent away", func() bool { return sent.Count("too many agents connect at a time") >= agents })
	online := p.Stats().Agents
	assert.Zero(t, online, "are online")
	close(release)
	await.Until(t, "all are in", func() bool { return p.Stats().Agents == agents+busy })
}
