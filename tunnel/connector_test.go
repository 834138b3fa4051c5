package tunnel

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
	require.NoError(t, err)
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
			_, err := control.Read(make([]byte, 1))
			require.NoError(t, err)
		}
		heard := time.Now()
		_, err := control.Read(make([]byte, 1))
		assert.Error(t, err, "something was read")
		<-control.connector.mux.CloseChan()
		took := time.Since(heard)
		assert.True(t, took >= heartbeatTimeout && took <= heartbeatTimeout+time.Second, "it ended after %s", took)
	})
}
