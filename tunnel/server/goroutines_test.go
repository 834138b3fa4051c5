package server_test

import (
	"bufio"
	"bytes"
	"fmt"
	"runtime/pprof"
	"strings"
	"testing"

	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/tunnel"
)

// labelled labels the goroutine of the test, and thus all that it starts from now on. The function
// that it returns counts them. Goroutines of other tests do not matter.
func labelled(t *testing.T) (count func() int) {
	t.Helper()
	pprof.SetGoroutineLabels(pprof.WithLabels(t.Context(), pprof.Labels("test", t.Name())))
	return func() (all int) {
		t.Helper()
		var profile bytes.Buffer
		if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
			t.Fatal(err)
		}
		label, same := fmt.Sprintf("%q:%q", "test", t.Name()), 0
		for lines := bufio.NewScanner(&profile); lines.Scan(); {
			if n := 0; strings.HasPrefix(lines.Text(), "# labels:") {
				if strings.Contains(lines.Text(), label) {
					all += same
				}
			} else if _, err := fmt.Sscanf(lines.Text(), "%d @", &n); err == nil {
				same = n
			}
		}
		return all
	}
}

// Counts the goroutines of an idle tunnel exactly: a control plane has ten thousand, and a
// goroutine each is 40 to 80 MB of its memory.
func TestTunnel_GoroutinesAtRest(t *testing.T) {
	const (
		tunnels = 8
		// ofServer are the one that reads the session, and frps' worker and its two of the control
		// connection.
		ofServer = 4
		// ofAgent are the one that reads the session; the tunnel's own, which this test starts;
		// frpc's worker, two of the control connection, and its look at the proxy.
		ofAgent = 6
	)
	count := labelled(t)
	p := newPlane(t)
	before := count()
	atRest := func(what string, each int) {
		t.Helper()
		await.Until(t, fmt.Sprintf("%s has %d goroutines", what, each), func() bool { return count() == before+tunnels*each })
		before += tunnels * each
	}
	for i := range tunnels {
		id := fmt.Sprintf("strange-%d", i)
		a := p.attacker(t, id)
		a.register(a.login(id), id)
	}
	atRest("a tunnel whose agent is a multiplexer and no more", ofServer+1)
	for i := range tunnels {
		p.bareAgent(fmt.Sprintf("usual-%d", i)).waitFor(t, tunnel.Connected)
	}
	atRest("a tunnel with its agent", ofServer+ofAgent)
}
