package gateway_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/hostile"
)

// hostile is the gateway's port for HTTPS.
func (w *world) hostile(protocol string) hostile.Target {
	return hostile.Target{Addr: w.secure.String(), TLS: &tls.Config{
		RootCAs: w.roots, ServerName: host, MinVersion: tls.VersionTLS12, NextProtos: []string{protocol},
	}}
}

func TestGateway_ClosesAttacks(t *testing.T) {
	w := newWorld(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }),
		func(c *gateway.Config) {
			c.Patience = gateway.Patience{Header: time.Second, Idle: time.Second, Progress: time.Second}
		})
	before := runtime.NumGoroutine()
	const patience = time.Minute
	anything := func([]byte) bool { return true }
	overPlain := hostile.HTTP1("/")
	for i := range overPlain {
		overPlain[i].Secure = false
	}
	for name, attack := range map[string]struct {
		target  hostile.Target
		attacks []hostile.Attack
	}{
		"TLS":    {hostile.Target{Addr: w.secure.String()}, hostile.TLS(host)},
		"HTTP/1": {w.hostile("http/1.1"), hostile.HTTP1("/")},
		"HTTP/2": {w.hostile("h2"), hostile.HTTP2("/", 10_000)},
		"plain":  {hostile.Target{Addr: w.plain.String()}, overPlain},
	} {
		left, err := attack.target.LeftOpen(t.Context(), attack.attacks, patience, anything)
		require.NoError(t, err, name)
		assert.Empty(t, left, name)
	}
	w.served(w.client(true))
	await.Until(t, "the goroutines of all attacks have ended", func() bool { return runtime.NumGoroutine() < before+20 })
}

// usualVisitors is how many hostile connections come unless the variable says otherwise; the
// release suite has 10 000 come. They come in waves, so many at a time.
const (
	usualVisitors    = 600
	visitorsVariable = "PIPEOPS_TEST_HOSTILE_VISITORS"
	visitorsWave     = 300
	attackers        = 32
)

// TestGateway_MemoryUnderAttack serves good visitors beside hostile ones. Afterwards there are as
// many goroutines as before, and as much memory.
func TestGateway_MemoryUnderAttack(t *testing.T) {
	const goroutinesMore, heapMore = 20, 32 << 20
	visitors := usualVisitors
	if text := os.Getenv(visitorsVariable); text != "" {
		var err error
		visitors, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	w := newWorld(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/large" {
			_, _ = io.CopyN(w, zeros{}, 64<<20)
		}
	}), func(c *gateway.Config) {
		c.Patience = gateway.Patience{Header: 5 * time.Second, Idle: 2 * time.Second, Progress: 2 * time.Second}
	})
	w.served(w.client(false))
	before, heapBefore := measure()

	ctx, stop := context.WithCancel(t.Context())
	var served atomic.Int64
	good, kept := errgroup.WithContext(ctx)
	good.Go(func() error { return w.visit(ctx, &served) })
	attacks := w.attacks()
	for sent := 0; (sent < visitors || served.Load() < 10) && kept.Err() == nil; sent += visitorsWave {
		attackWave(t, attacks, sent)
	}
	stop()
	require.NoError(t, good.Wait(), "good visitors are served")
	t.Logf("%d requests were served meanwhile", served.Load())

	var goroutines int
	var heap uint64
	await.Until(t, "goroutines and memory are back", func() bool {
		w.cut() // what is kept for later
		goroutines, heap = measure()
		return goroutines <= before+goroutinesMore && heap <= heapBefore+heapMore
	})
	t.Logf("goroutines %d, before %d; heap %d KiB, before %d KiB", goroutines, before, heap>>10, heapBefore>>10)
}

// TestGateway_AnnouncedFrames announces large HTTP/2 frames that are never sent: no memory is
// reserved for them.
func TestGateway_AnnouncedFrames(t *testing.T) {
	const connections, most = 100, 50 << 20 // a megabyte each would be 100
	w := newWorld(t, http.NotFoundHandler())
	w.served(w.client(false))
	_, before := measure()
	conns := make([]net.Conn, connections)
	for i := range conns {
		var err error
		conns[i], err = w.hostile("h2").Send(t.Context(), hostile.AnnouncedFrame())
		require.NoError(t, err)
		defer hostile.Reset(conns[i])
	}
	for _, conn := range conns { // it has read the frame's header when it hangs up
		_, err := hostile.Ended(conn, time.Minute)
		require.NoError(t, err)
	}
	_, after := measure()
	assert.Less(t, after, before+most)
}

func measure() (goroutines int, heap uint64) {
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return runtime.NumGoroutine(), m.HeapAlloc
}

// visit is what good visitors do, on connections that are kept and on new ones.
func (w *world) visit(ctx context.Context, served *atomic.Int64) error {
	clients := []*http.Client{w.client(false), w.client(true), w.client(false)}
	for _, c := range clients { // an address has a share of the requests, and the attackers use up theirs
		w.from(c, "127.0.0.2", nil)
	}
	failures := 0 // in a row: a connection may be closed as a request is sent, or a handshake take too long
	for i := 0; ctx.Err() == nil; i++ {
		c := clients[i%len(clients)]
		r, err := http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodGet, "https://"+host+"/", http.NoBody)
		if err != nil {
			return err
		}
		resp, err := c.Do(r)
		if failures++; err != nil && failures < 20 {
			continue
		}
		if err != nil {
			return err
		}
		failures = 0
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			return err
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("a good visitor got %s", resp.Status)
		}
		served.Add(1)
		if i%2 == 0 {
			clients[2].CloseIdleConnections()
		}
	}
	return nil
}

// shot is an attack and where it goes.
type shot struct {
	hostile.Target
	hostile.Attack
}

func (w *world) attacks() (all []shot) {
	for _, a := range hostile.TLS(host) {
		all = append(all, shot{hostile.Target{Addr: w.secure.String()}, a})
	}
	for _, a := range append(append(hostile.HTTP1("/"), hostile.HTTP2("/", 300)...), hostile.Visitors(host, 300)...) {
		all = append(all, shot{w.hostile(a.ALPN), a})
	}
	return all
}

// attackWave sends a wave. The connections stay until all of it was sent.
func attackWave(t *testing.T, attacks []shot, from int) {
	t.Helper()
	var group errgroup.Group
	group.SetLimit(attackers)
	conns := make([]net.Conn, visitorsWave)
	for i := range conns {
		a := attacks[(from+i)%len(attacks)]
		group.Go(func() error {
			conn, err := a.Send(t.Context(), a.Attack)
			if err == nil {
				conns[i] = conn
			}
			return nil // it was refused, which is as good
		})
	}
	require.NoError(t, group.Wait())
	arrived := 0
	for i, conn := range conns {
		if conn == nil {
			continue
		}
		arrived++
		if i%2 == 0 {
			hostile.Reset(conn)
		} else {
			_ = conn.Close()
		}
	}
	assert.Greater(t, arrived, visitorsWave/2, "most of the attack has to arrive")
}
