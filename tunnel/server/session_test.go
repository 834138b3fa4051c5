package server

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fatedier/frp/pkg/msg"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/link"
	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/mux"
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

// A hostile agent stops in the middle of a message. The session must not outlive the timeout of
// a first message.
func TestSession_EndsOnTruncatedMessage(t *testing.T) {
	for name, start := range map[string]string{"nothing": "", "a type": "o", "half a length": "o\x00\x00", "half a body": "o\x00\x00\x00\x00\x00\x00\x00\x40{\"ve"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := net.Pipe()
				log := zerolog.Nop()
				cfg := Config{Limits: Limits{}.withDefaults(), Log: log}
				s := newSession(&Server{cfg: cfg}, near, near, nil, "evil", nil)
				var streams sync.WaitGroup
				s.mux = link.Server(near, nil, func(opened *mux.Stream) { s.accept(t.Context(), &streams, opened) })
				served := make(chan error, 1)
				go func() { served <- s.mux.Serve() }()
				evil := link.Client(far, nil, nil)
				defer func() { _ = evil.Close() }()

				stream, err := evil.Open()
				require.NoError(t, err)
				_, err = io.WriteString(stream, start)
				require.NoError(t, err)
				began := time.Now()
				select {
				case <-evil.CloseChan():
				case <-time.After(time.Hour):
					s.kill(errors.New("nothing has ended it"))
				}
				<-served
				streams.Wait()
				if took := time.Since(began); took != cfg.Limits.HandshakeTimeout || !errors.Is(s.why(), errForeign) {
					t.Errorf("it ended after %s: %v", took, s.why())
				}
			})
		})
	}
}
