package limit

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/util/workqueue"

	"github.com/pipeops/pipeops-vm-agent/test/await"
)

func address(n uint32) netip.Prefix {
	var a [4]byte
	binary.BigEndian.PutUint32(a[:], n)
	return peer(netip.AddrFrom4(a))
}

// open listens on this machine with limits.
func open(t *testing.T, cfg Config) *Listener {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	cfg.Log = zerolog.Nop()
	l := Listen(ln, cfg)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func dial(t *testing.T, l net.Listener, from string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.DialContext(t.Context(), "tcp", l.Addr().String())
	require.NoError(t, err)
	require.NoError(t, c.SetDeadline(time.Now().Add(time.Minute)))
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func accept(t *testing.T, l net.Listener) net.Conn {
	t.Helper()
	c, err := l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func isRefused(t *testing.T, c net.Conn) {
	t.Helper()
	_, err := c.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET)
}

func TestListener_LimitsPeer(t *testing.T) {
	l := open(t, Config{PerPeer: 2, Connections: 3})
	dial(t, l, "127.0.0.1")
	first := accept(t, l)
	dial(t, l, "127.0.0.1")
	accept(t, l)
	third := dial(t, l, "127.0.0.1")
	dial(t, l, "127.0.0.2")
	accept(t, l)
	isRefused(t, third)
	assert.Equal(t, Stats{Open: 3, Peers: 2, Accepted: 3, Refused: 1}, l.Stats())

	// All places are taken now; one that is given back is free for anybody.
	assert.Equal(t, "connections", l.enter(address(3), time.Now()))
	require.NoError(t, first.Close())
	require.Error(t, first.Close(), "closed twice, but counted once")
	assert.Equal(t, 2, l.Stats().Open)
	dial(t, l, "127.0.0.3")
	assert.Contains(t, accept(t, l).RemoteAddr().String(), "127.0.0.3")
}

func TestListener_LimitsRate(t *testing.T) {
	l := open(t, Config{PerPeer: 10, NewPerSecond: 2})
	now, p := time.Now(), address(1)
	for range 10 {
		assert.Empty(t, l.enter(p, now))
		l.leave(p, now)
	}
	assert.Contains(t, l.enter(p, now), "per second")
	assert.Empty(t, l.enter(address(2), now), "another peer has its own")
	assert.Empty(t, l.enter(p, now.Add(time.Second)))
}

func TestListener_SharedAddresses(t *testing.T) {
	l := open(t, Config{PerPeer: 1, NewPerSecond: 1, Connections: 5, Shared: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	now, nat := time.Now(), peer(netip.MustParseAddr("10.1.2.3"))
	for range 5 {
		assert.Empty(t, l.enter(nat, now))
	}
	assert.Equal(t, "connections", l.enter(nat, now))
}

// They come back at once, twice within a minute, each with a connection that stays.
func TestListener_ManyAgentsOfOneAddress(t *testing.T) {
	l := open(t, Config{})
	now, nat := time.Now(), address(1)
	for range 2 {
		for range 10_000 {
			require.Empty(t, l.enter(nat, now))
		}
		for range 10_000 {
			l.leave(nat, now)
		}
		now = now.Add(40 * time.Second)
	}
}

func TestListener_LimitsTable(t *testing.T) {
	l := open(t, Config{PerPeer: 2, NewPerSecond: 1, Quiet: 100})
	now := time.Now()
	require.Empty(t, l.enter(address(0), now), "it stays")
	for n := range uint32(100_000) {
		require.Empty(t, l.enter(address(n+1), now))
		l.leave(address(n+1), now)
	}
	assert.Equal(t, 101, l.Stats().Peers)
	assert.Equal(t, 1, l.peers.peers[address(0)].open)
	require.Empty(t, l.enter(address(5), now.Add(time.Minute)))
	assert.Equal(t, 2, l.Stats().Peers, "who has been quiet for long enough is as good as new")
}

func TestPeerOf(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.7:1":                "192.0.2.7/32",
		"[::ffff:192.0.2.7]:1":       "192.0.2.7/32",
		"[2001:db8:1:2:3:4:5:6]:1":   "2001:db8:1:2::/64",
		"[2001:db8:1:2:ffff::1]:443": "2001:db8:1:2::/64",
		"[fe80::1%eth0]:1":           "fe80::/64",
		"":                           "invalid Prefix",
		"a-pipe":                     "invalid Prefix",
	} {
		assert.Equal(t, want, PeerOfText(text).String(), text)
	}
	assert.Equal(t, "192.0.2.7/32", PeerOf(&net.TCPAddr{IP: net.ParseIP("192.0.2.7"), Port: 1}).String())
	assert.Equal(t, netip.Prefix{}, PeerOf(nil))
	a, _ := net.Pipe()
	assert.Equal(t, netip.Prefix{}, PeerOf(a.RemoteAddr()))
}

func TestParseNetwork(t *testing.T) {
	for text, want := range map[string]string{
		"10.1.2.3/8": "10.0.0.0/8", "192.0.2.7": "192.0.2.7/32", "2001:db8::1": "2001:db8::1/128", "2001:db8::1/32": "2001:db8::/32", "::/0": "::/0",
	} {
		got, err := ParseNetwork(text)
		require.NoError(t, err)
		assert.Equal(t, netip.MustParsePrefix(want), got)
	}
	for _, text := range []string{"lb.example.com", "", "10.0.0.0/33", "10.0.0/8", "::ffff:10.0.0.1", "::ffff:10.0.0.0/104", "fe80::1%eth0", "10.0.0.1:80"} {
		_, err := ParseNetwork(text)
		require.ErrorContains(t, err, "is neither a network nor an address", text)
	}
}

func TestListener_DropsLongestWaiting(t *testing.T) {
	l := open(t, Config{Handshakes: 2})
	var ends []net.Conn
	var conns []net.Conn
	for range 2 {
		ends = append(ends, dial(t, l, "127.0.0.1"))
		conns = append(conns, accept(t, l))
	}
	Settled(conns[0])
	Settled(conns[0])
	assert.Equal(t, 1, l.Stats().Handshakes)
	for range 2 {
		ends = append(ends, dial(t, l, "127.0.0.1"))
		conns = append(conns, accept(t, l))
	}
	_, err := ends[1].Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF, "the second waited longest")
	for _, c := range conns {
		_ = c.Close()
	}
	assert.Equal(t, 0, l.Stats().Handshakes)
	assert.Equal(t, 0, l.Stats().Open)
}

func TestShares_Enter(t *testing.T) {
	s := NewShares(3, 2)
	leave, ok := s.Enter("a")
	require.True(t, ok)
	_, ok = s.Enter("a")
	require.True(t, ok)
	_, ok = s.Enter("a")
	assert.False(t, ok, "its share")
	_, ok = s.Enter("b")
	require.True(t, ok)
	_, ok = s.Enter("c")
	assert.False(t, ok, "all")
	leave()
	leave()
	assert.Equal(t, 2, s.Taken())
	_, ok = s.Enter("c")
	assert.True(t, ok)
	assert.Len(t, s.by, 3)
}

func TestShares_Wait(t *testing.T) {
	s := NewShares(2, 1)
	leave, ok := s.Wait(t.Context(), "a")
	require.True(t, ok)
	ended, end := context.WithCancel(t.Context())
	end()
	_, ok = s.Wait(ended, "a")
	require.False(t, ok)
	second := make(chan func(), 1)
	go func() {
		leave, _ := s.Wait(t.Context(), "a")
		second <- leave
	}()
	_, ok = s.Wait(t.Context(), "b")
	require.True(t, ok, "another does not wait for it")
	leave()
	await.Receive(t, second, "the place that was left")()
	assert.Equal(t, 1, s.Taken())
}

// TestOwnerShares: a Runner with several namespaces leaves the last place to others.
func TestOwnerShares(t *testing.T) {
	s := NewOwnerShares(4, PerOwner{Namespace: 2, Runner: 3})
	ended, end := context.WithCancel(t.Context())
	end()
	runner := WithRunner(ended, "greedy")
	for _, namespace := range []string{"a", "a", "b"} {
		_, ok := s.Wait(runner, OwnerOf(runner, namespace))
		require.True(t, ok)
	}
	_, ok := s.Wait(runner, OwnerOf(runner, "c"))
	assert.False(t, ok, "the Runner has its share")
	_, ok = s.Wait(ended, Owner{"a", "modest"})
	assert.False(t, ok, "the namespace has its share")
	leave, ok := s.Wait(ended, Owner{"c", "modest"})
	require.True(t, ok)
	_, ok = s.Wait(ended, OwnerOf(ended, ""))
	assert.False(t, ok, "all are taken")
	leave()
	assert.Equal(t, 3, s.shares.Taken())
	assert.Equal(t, map[string]int{"namespace/a": 2, "namespace/b": 1, "runner/greedy": 3}, s.shares.by)
}

// TestShares_WaitInOrder: one who came first gets the place before others who ask again and again.
func TestShares_WaitInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewShares(10, 1)
		leave, ok := s.Wait(t.Context(), "a")
		require.True(t, ok)
		var order []int
		var all sync.WaitGroup
		for n := range 50 {
			all.Go(func() {
				leave, ok := s.Wait(t.Context(), "a")
				assert.True(t, ok)
				order = append(order, n)
				leave()
			})
			synctest.Wait()
		}
		leave()
		all.Wait()
		assert.True(t, slices.IsSorted(order), "%v", order)
		assert.Len(t, order, 50)
		assert.Zero(t, s.Taken())
	})
}

func TestLocks_OneAtATime(t *testing.T) {
	var l Locks
	l.Unlock("a") // without a Lock
	require.NoError(t, l.Lock(t.Context(), "a"))
	require.NoError(t, l.Lock(t.Context(), "b"))
	ended, end := context.WithCancel(t.Context())
	end()
	require.ErrorIs(t, l.Lock(ended, "a"), context.Canceled)
	second := make(chan error, 1)
	go func() { second <- l.Lock(t.Context(), "a") }()
	l.Unlock("a")
	require.NoError(t, await.Receive(t, second, "the lock that was returned"))
	l.Unlock("a")
	assert.Equal(t, 1, l.all().Taken())
}

// Each of two names that want all leaves room for the next.
func TestFairShares_LeaveRoom(t *testing.T) {
	s := NewFairShares(1536, 1024)
	counts := map[string]int{}
	for _, name := range []string{"a", "b", "c"} {
		for {
			if _, ok := s.Enter(name); !ok {
				break
			}
			counts[name]++
		}
	}
	assert.Equal(t, map[string]int{"a": 1024, "b": 342, "c": 114}, counts)
	_, ok := s.Enter("d")
	assert.True(t, ok)
}

// TestWorkers_ShareByOwner: an owner whose work does not end does not delay that of others.
func TestWorkers_ShareByOwner(t *testing.T) {
	done, hang := make(chan struct{}, 8), make(chan struct{})
	w := NewWorkers(4, 2, func() { done <- struct{}{} })
	assert.True(t, w.Try("slow", "1", func() { <-hang }))
	assert.False(t, w.Try("slow", "1", func() {}), "it is being done")
	assert.True(t, w.Try("slow", "2", func() { <-hang }))
	assert.False(t, w.Try("slow", "3", func() {}), "its share is taken")
	for range 3 {
		assert.True(t, w.Try("other", "4", func() {}))
		await.Receive(t, done, "the work of another")
	}
	close(hang)
	w.Wait()
	assert.True(t, w.Try("slow", "3", func() {}))
	w.Wait()
}

// TestLanes_Drain: an owner whose work does not end leaves a worker to others, and each piece gets
// its turn once.
func TestLanes_Drain(t *testing.T) {
	q, l := workqueue.NewTyped[string](), NewLanes[string](PerOwner{Namespace: 1})
	begun, hang := make(chan string, 8), make(chan struct{})
	var workers sync.WaitGroup
	for range 2 {
		workers.Go(func() {
			l.Drain(q, func(piece string) Owner { return Owner{Namespace: piece[:1]} }, func(piece string) {
				begun <- piece
				if piece[0] == 's' {
					<-hang
				}
			})
		})
	}
	q.Add("s1")
	assert.Equal(t, "s1", await.Receive(t, begun, "a piece"))
	for _, piece := range []string{"s2", "s3", "o1"} { // one worker is left, which takes them in order
		q.Add(piece)
	}
	assert.Equal(t, "o1", await.Receive(t, begun, "another owner's"))
	q.Add("s2")
	q.Add("o2")
	assert.Equal(t, "o2", await.Receive(t, begun, "the other owner's next"))
	close(hang)
	assert.Equal(t, "s2", await.Receive(t, begun, "the first that waited"))
	assert.Equal(t, "s3", await.Receive(t, begun, "the second"))
	q.ShutDown()
	workers.Wait()
	assert.Empty(t, l.busy)
	assert.Zero(t, l.places.Taken())
}

func TestLanes_Priority(t *testing.T) {
	l, a := NewLanes[string](PerOwner{Namespace: 1}), Owner{Namespace: "a"}
	assert.True(t, l.Begin(a, "first", 0))
	for _, low := range []string{"low", "also"} {
		assert.False(t, l.Begin(a, low, -1))
	}
	assert.False(t, l.Begin(a, "high", 0))
	assert.False(t, l.Begin(a, "also", 0), "it is more urgent now")
	last := "first"
	for _, want := range []Turn[string]{{"also", 0}, {"high", 0}, {"low", -1}} {
		assert.Equal(t, []Turn[string]{want}, l.End(last))
		assert.True(t, l.Begin(a, want.Piece, 0))
		last = want.Piece
	}
}

// TestLanes_ByRunner: a Runner with many namespaces has a share in all of them. A place that is
// free again is not lost when the piece that gets it has another owner by then.
func TestLanes_ByRunner(t *testing.T) {
	l := NewLanes[string](PerOwner{Namespace: 1, Runner: 2})
	assert.True(t, l.Begin(Owner{"a", "greedy"}, "a1", 0))
	assert.True(t, l.Begin(Owner{"b", "greedy"}, "b1", 0))
	assert.False(t, l.Begin(Owner{"c", "greedy"}, "c1", 0))
	assert.False(t, l.Begin(Owner{"a", "modest"}, "a2", 0), "the namespace has its share")
	assert.True(t, l.Begin(Owner{"d", "modest"}, "d1", 0))
	assert.Equal(t, []Turn[string]{{"c1", 0}, {"a2", 0}}, l.End("a1"))
	assert.False(t, l.Begin(Owner{"e", "greedy"}, "e1", 0), "the place is kept")
	assert.True(t, l.Begin(Owner{"c", "other"}, "c1", 0), "another Runner has put it")
	assert.Equal(t, []Turn[string]{{"e1", 0}}, l.End("c1"))
	for _, piece := range []string{"a2", "b1", "d1", "e1"} {
		assert.Empty(t, l.End(piece))
	}
	assert.Empty(t, l.busy)
	assert.Zero(t, l.places.Taken())
}

func TestFailures_Wait(t *testing.T) {
	f := NewFailures[netip.Prefix](2, time.Second).Except(Within([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}))
	now, p := time.Now(), address(1)
	for range 2 {
		assert.Zero(t, f.Wait(p, now))
		f.Failed(p, now)
	}
	assert.Equal(t, time.Second, f.Wait(p, now).Round(time.Millisecond))
	assert.Zero(t, f.Wait(address(2), now))
	assert.Zero(t, f.Wait(p, now.Add(time.Second)))
	for range 10 {
		f.Failed(peer(netip.MustParseAddr("10.0.0.1")), now)
	}
	assert.Zero(t, f.Wait(peer(netip.MustParseAddr("10.0.0.1")), now))
}
