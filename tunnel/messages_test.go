package tunnel

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fatedier/frp/pkg/msg"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/link"
	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/mux"
)

// speaking is an agent's messages and the stream at which a server has its end of them.
func speaking(t *testing.T) (*messages, net.Conn) {
	t.Helper()
	control, answers := controlled(t)
	return newMessages(msg.NewV1ReadWriter(control)), answers
}

func TestHeartbeat_UntilConnectionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, server := speaking(t)
		m.begin()
		for range 2 { // before the server was silent for too long
			before := time.Now()
			if said, err := msg.ReadMsg(server); err != nil {
				t.Fatal(err)
			} else if _, ok := said.(*msg.Ping); !ok {
				t.Fatalf("the agent said %T", said)
			}
			if took := time.Since(before); took < heartbeatInterval || took > heartbeatInterval+heartbeatInterval/10 {
				t.Errorf("the heartbeat came after %s", took)
			}
		}
		require.NoError(t, server.Close())
		_, err := m.ReadMsg()
		assert.Error(t, err, "something was read")
		assert.False(t, m.beat.Stop(), "there is to be another heartbeat")
	})
}

// Reads as frpc does, which has handled a message when it reads the next.
func TestProxied_AfterFRPCRead(t *testing.T) {
	for _, want := range []string{"", "the name is taken"} {
		synctest.Test(t, func(t *testing.T) {
			m, server := speaking(t)
			go func() {
				_ = msg.WriteMsg(server, &msg.Pong{})
				_ = msg.WriteMsg(server, &msg.NewProxyResp{Error: want})
			}()
			read := make(chan msg.Message)
			go func() {
				defer close(read)
				for {
					got, err := m.ReadMsg()
					if err != nil {
						return
					}
					read <- got
				}
			}()
			synctest.Wait()
			select {
			case <-read:
				t.Fatal("frpc has read before it had its proxy")
			default:
			}
			m.begin()
			<-read
			<-read
			synctest.Wait()
			select {
			case err := <-m.proxied:
				assert.True(t, (err == nil) == (want == "") && (err == nil || err.Error() == want), "told %v", err)
			default:
				t.Error("nothing was told")
			}
			_ = server.Close()
			for range read { // until frpc's end
			}
		})
	}
}

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
