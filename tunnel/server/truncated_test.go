package server

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/link"
	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/mux"
)

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
