package server

import (
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

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
			if err := msg.WriteMsg(agent, &msg.Ping{}); err != nil {
				t.Fatal(err)
			}
		}
		said := time.Now()
		if err := <-ended; !errors.Is(err, errSilent) {
			t.Errorf("it ended: %v", err)
		}
		if took := time.Since(said); took != heartbeatTimeout {
			t.Errorf("it ended after %s", took)
		}
	})
}
