package tunnel

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/link"
)

// TestSilentServerEndsTheSession has a server's FRP say something just in time, and then nothing
// more, while its multiplexer lives.
func TestSilentServerEndsTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		server := link.Server(far, nil)
		defer func() { _ = server.Close() }()
		c := &connector{mux: link.Client(near, nil)}
		control, err := c.openControl()
		if err != nil {
			t.Fatal(err)
		}
		answers, err := server.AcceptStream()
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			go func() {
				time.Sleep(heartbeatTimeout - time.Second)
				_, _ = answers.Write([]byte("x"))
			}()
			if _, err := control.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
		}
		heard := time.Now()
		if _, err := control.Read(make([]byte, 1)); err == nil {
			t.Error("something was read")
		}
		<-c.mux.CloseChan()
		if took := time.Since(heard); took < heartbeatTimeout || took > heartbeatTimeout+time.Second {
			t.Errorf("it ended after %s", took)
		}
	})
}
