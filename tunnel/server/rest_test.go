package server_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/pipeops/pipeops-vm-agent/tunnel"
)

// TestGoroutinesAtRest counts what a tunnel takes that nothing goes through, to the goroutine:
// a control plane has ten thousand, and a goroutine each is 40 to 80 MB of its memory.
func TestGoroutinesAtRest(t *testing.T) {
	const (
		tunnels = 8
		// ofServer are the one that reads the session, and frps' worker and its two of the control
		// connection.
		ofServer = 4
		// ofAgent are the one that reads the session; the tunnel's own, which this test starts; frpc's worker, two
		// of the control connection, and its look at the proxy.
		ofAgent = 6
	)
	p := newPlane(t)
	atRest := func(what string, before, each int) {
		t.Helper()
		want := before + tunnels*each
		eventually(t, fmt.Sprintf("%s has %d goroutines", what, each), func() bool { return runtime.NumGoroutine() == want })
	}
	before := runtime.NumGoroutine()
	for i := range tunnels {
		id := fmt.Sprintf("strange-%d", i)
		a := p.attacker(t, id)
		a.register(a.login(id), id)
	}
	atRest("a tunnel whose agent is a multiplexer and no more", before, ofServer+1)
	before += tunnels * (ofServer + 1)
	for i := range tunnels {
		p.bareAgent(fmt.Sprintf("usual-%d", i)).waitFor(t, tunnel.Connected)
	}
	atRest("a tunnel with its agent", before, ofServer+ofAgent)
}
