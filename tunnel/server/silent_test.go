package server

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fatedier/frp/pkg/msg"
)

// An agent's FRP sends a message just in time, and then nothing more.
func TestSession_EndsOnSilentFRP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		agent, server := net.Pipe()
		defer func() { _ = agent.Close() }()
		ended := make(chan error, 2)
		g := &guard{ReadWriter: msg.NewV1ReadWriter(server), onEnd: func(err error) {
			ended <- err
			_ = server.Close()
		}}
		go func() {
			for {
				if _, err := g.ReadMsg(); err != nil {
					return
				}
			}
		}()
		for range 3 {
			time.Sleep(heartbeatTimeout - time.Second)
			require.NoError(t, msg.WriteMsg(agent, &msg.Ping{}))
		}
		said := time.Now()
		assert.ErrorIs(t, <-ended, errSilent, "it ended")
		assert.Equal(t, heartbeatTimeout, time.Since(said), "it ended after")
	})
}
