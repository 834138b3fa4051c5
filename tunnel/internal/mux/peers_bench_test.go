package mux_test

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	hashicorp "github.com/hashicorp/yamux"
	libp2p "github.com/libp2p/go-yamux/v5" // the multiplexer that ours is measured against, and nothing else

	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/link"
	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/mux"
	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/tunneltest"
)

const (
	sample   = 400 * time.Millisecond
	bulkSize = 64 << 20
	window   = 24 << 20
	endless  = 1 << 60
	stalled  = 20 * time.Second // a stream that has moved nothing for so long never will
)

// session is one end of a multiplexer's connection.
type session struct {
	open, accept func() (net.Conn, error)
	close        func() error
}

// multiplexers are this one as the tunnel uses it, and the two libraries that speak its protocol,
// with the same windows.
var multiplexers = []struct {
	name           string
	client, server func(b *testing.B, conn *tls.Conn, below *link.Socket) session
}{
	{
		name: "ours",
		client: func(_ *testing.B, conn *tls.Conn, below *link.Socket) session {
			s := link.Client(conn, below, nil)
			return session{open: s.Open, close: s.Close}
		},
		server: func(_ *testing.B, conn *tls.Conn, below *link.Socket) session {
			streams := make(chan net.Conn, 1<<12)
			s := link.Server(conn, below, func(opened *mux.Stream) { streams <- opened })
			go func() { _ = s.Serve() }()
			return session{accept: func() (net.Conn, error) {
				select {
				case stream := <-streams:
					return stream, nil
				case <-s.CloseChan():
					return nil, net.ErrClosed
				}
			}, close: s.Close}
		},
	},
	{name: "hashicorp", client: ofHashicorp(hashicorp.Client), server: ofHashicorp(hashicorp.Server)},
	{name: "libp2p", client: ofLibp2p(libp2p.Client), server: ofLibp2p(libp2p.Server)},
}

func ofHashicorp(begin func(io.ReadWriteCloser, *hashicorp.Config) (*hashicorp.Session, error)) func(*testing.B, *tls.Conn, *link.Socket) session {
	return func(b *testing.B, conn *tls.Conn, _ *link.Socket) session {
		cfg := hashicorp.DefaultConfig()
		cfg.MaxStreamWindowSize, cfg.LogOutput = window, io.Discard
		s, err := begin(conn, cfg)
		require.NoError(b, err)
		return session{open: s.Open, accept: s.Accept, close: s.Close}
	}
}

func ofLibp2p(begin func(net.Conn, *libp2p.Config, func() (libp2p.MemoryManager, error)) (*libp2p.Session, error)) func(*testing.B, *tls.Conn, *link.Socket) session {
	return func(b *testing.B, conn *tls.Conn, _ *link.Socket) session {
		cfg := libp2p.DefaultConfig()
		// Streams stop for good with other windows than its own 16 MiB, such as 24: when a window
		// grows, the other end is not told of what was read before.
		cfg.LogOutput = io.Discard
		s, err := begin(conn, cfg, nil)
		require.NoError(b, err)
		return session{open: func() (net.Conn, error) { return s.Open(context.Background()) }, accept: s.Accept, close: s.Close}
	}
}

// BenchmarkMultiplexers measures this multiplexer and the libraries in turns, over TLS. An
// iteration takes one sample of each; the medians are reported:
//
//	go test ./tunnel/internal/mux -run '^$' -bench Multiplexers -benchtime 9x
func BenchmarkMultiplexers(b *testing.B) {
	for name, measure := range map[string]func(*testing.B, session) float64{
		"calls of 50, in a second": func(b *testing.B, s session) float64 {
			return float64(len(load(b, s, 50))) / sample.Seconds()
		},
		"bulk, MB in s":                         bulk,
		"p99 of 50 beside bulk, in ms":          func(b *testing.B, s session) float64 { return beside(b, s, true) },
		"p99 of 50 beside a stalled one, in ms": func(b *testing.B, s session) float64 { return beside(b, s, false) },
		"p99 of 50 alone, in ms":                p99,
	} {
		b.Run(name, func(b *testing.B) { inTurns(b, 0, measure) })
	}
	b.Run("bulk over 40 ms, MB in s", func(b *testing.B) { inTurns(b, 20*time.Millisecond, bulk) })
	b.Run("an end at rest, KiB", atRest)
}

// atRest measures the memory of an end of a session that has no streams.
func atRest(b *testing.B) {
	const sessions = 200
	inUse := func() float64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc + m.StackInuse)
	}
	figures := make([][]float64, len(multiplexers))
	for b.Loop() {
		for i := range multiplexers {
			before := inUse()
			for range sessions {
				s := connect(b, i, 0)
				stream := open(b, s)
				require.NoError(b, ask(stream, 1<<10))
				_ = stream.Close()
			}
			figures[i] = append(figures[i], (inUse()-before)/sessions/2/1024)
		}
	}
	report(b, figures)
}

func inTurns(b *testing.B, oneWay time.Duration, measure func(*testing.B, session) float64) {
	sessions, figures := make([]session, len(multiplexers)), make([][]float64, len(multiplexers))
	for i := range multiplexers {
		sessions[i] = connect(b, i, oneWay)
		if oneWay > 0 {
			measure(b, sessions[i]) // TCP's own windows have grown
		}
	}
	for b.Loop() {
		for i, s := range sessions {
			figures[i] = append(figures[i], measure(b, s))
		}
	}
	report(b, figures)
}

func report(b *testing.B, figures [][]float64) {
	for i, m := range multiplexers {
		slices.Sort(figures[i])
		b.ReportMetric(figures[i][len(figures[i])/2], m.name)
	}
	b.ReportMetric(0, "ns/op") // says nothing here
}

// connect returns the client's end of a session. Each stream at the server's end answers eight
// bytes, a number, with so many.
func connect(b *testing.B, which int, oneWay time.Duration) session {
	b.Helper()
	ca := tunneltest.NewCA(b)
	ln, err := new(net.ListenConfig).Listen(b.Context(), "tcp", "127.0.0.1:0")
	require.NoError(b, err)
	defer func() { _ = ln.Close() }()
	at := ln.Addr().String()
	if oneWay > 0 {
		at = tunneltest.NewDelay(b, at, oneWay)
	}
	near, err := new(net.Dialer).DialContext(b.Context(), "tcp", at)
	require.NoError(b, err)
	far, err := ln.Accept()
	require.NoError(b, err)
	nearSocket, farSocket := link.NewSocket(near), link.NewSocket(far)
	client := multiplexers[which].client(b, tls.Client(nearSocket, ca.Agent("a1")), nearSocket)
	server := multiplexers[which].server(b, tls.Server(farSocket, ca.Server()), farSocket)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			stream, err := server.accept()
			if err != nil {
				return
			}
			all.Go(func() { answer(stream) })
		}
	})
	b.Cleanup(func() {
		_ = errors.Join(client.close(), server.close())
		all.Wait()
	})
	return client
}

func answer(stream net.Conn) {
	defer func() { _ = stream.Close() }()
	buffer := make([]byte, 32<<10)
	for {
		var size int64
		if binary.Read(stream, binary.BigEndian, &size) != nil {
			return
		}
		for size > 0 {
			n, err := stream.Write(buffer[:min(size, int64(len(buffer)))])
			if err != nil {
				return
			}
			size -= int64(n)
		}
	}
}

func ask(stream net.Conn, size int64) error {
	if err := binary.Write(stream, binary.BigEndian, size); err != nil {
		return err
	}
	_, err := io.CopyN(io.Discard, stream, size)
	return err
}

func open(b *testing.B, s session) net.Conn {
	b.Helper()
	stream, err := s.open()
	require.NoError(b, err)
	return stream
}

// bulk returns how many MB a second one stream carries, or 0 if it stops for good.
func bulk(b *testing.B, s session) float64 {
	stream := open(b, s)
	defer func() { _ = stream.Close() }()
	_ = stream.SetReadDeadline(time.Now().Add(stalled))
	if err := ask(stream, bulkSize); err != nil { // its window has grown
		return 0
	}
	started := time.Now()
	if err := ask(stream, bulkSize); err != nil {
		return 0
	}
	return bulkSize / 1e6 / time.Since(started).Seconds()
}

// load returns the sorted latencies of clients that ask for 1 KiB one after another.
func load(b *testing.B, s session, clients int) (all []time.Duration) {
	var (
		mu  sync.Mutex
		end = time.Now().Add(sample)
		wg  sync.WaitGroup
	)
	for range clients {
		stream := open(b, s)
		wg.Go(func() {
			defer func() { _ = stream.Close() }()
			var mine []time.Duration
			for time.Now().Before(end) {
				started := time.Now()
				if err := ask(stream, 1<<10); err != nil {
					b.Error(err)
					return
				}
				mine = append(mine, time.Since(started))
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, mine...)
		})
	}
	wg.Wait()
	slices.Sort(all)
	return all
}

// p99 returns how long the slowest of 50 clients wait, in ms.
func p99(b *testing.B, s session) float64 {
	all := load(b, s, 50)
	return all[len(all)*99/100].Seconds() * 1e3
}

// beside returns it beside a stream that is read at full speed, or not at all.
func beside(b *testing.B, s session, read bool) float64 {
	stream := open(b, s)
	require.NoError(b, binary.Write(stream, binary.BigEndian, int64(endless)))
	var reader sync.WaitGroup
	if read {
		reader.Go(func() { _, _ = io.Copy(io.Discard, stream) })
	}
	p99(b, s) // it is under way
	with := p99(b, s)
	_ = stream.SetReadDeadline(time.Now())
	reader.Wait()
	_ = stream.Close()
	return with
}
