package tunnel

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/link"
	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/mux"
)

// controlled is the stream of an agent's control messages, and the one at which a server has its
// end of them.
func controlled(t *testing.T) (*controlStream, net.Conn) {
	t.Helper()
	near, far := net.Pipe()
	accepted := make(chan *mux.Stream, 1)
	server := link.Server(far, nil, func(opened *mux.Stream) { accepted <- opened })
	go func() { _ = server.Serve() }()
	c := &connector{mux: link.Client(near, nil, nil)}
	t.Cleanup(func() { _, _ = c.Close(), server.Close() })
	control, err := c.openControl()
	if err != nil {
		t.Fatal(err)
	}
	return control, await.Receive(t, accepted, "the control stream")
}

// The server's FRP sends a message just in time, and then nothing, while its multiplexer lives.
func TestTunnel_EndsOnSilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		control, answers := controlled(t)
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
		<-control.connector.mux.CloseChan()
		if took := time.Since(heard); took < heartbeatTimeout || took > heartbeatTimeout+time.Second {
			t.Errorf("it ended after %s", took)
		}
	})
}
