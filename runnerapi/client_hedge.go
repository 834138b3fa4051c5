package runnerapi

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// hedgeCost is what asking a second time costs, in calls: one in ten may be asked twice.
	hedgeCost = 10
	// maxHedges is how many may be asked twice at once, after a time in which none had to be.
	maxHedges = 10
)

// The lanes of connections that become WebSockets, and of those of logs and events; the two
// before them are what calls choose between.
const (
	upgradesLane = iota + 2
	streamsLane
	allLanes
)

// lanes are two sets of connections to one agent, by different endpoints where there
// are two. All calls go by one of them, the first. A read whose connection falls silent is
// asked by the other as well, and the first answer that is there as a whole is taken: a node or a
// tunnel that was frozen closes nothing, and the multiplexer below takes 14 s to notice.
// Who wins is the first from then on.
type lanes struct {
	each      [2]*http.Transport
	first     atomic.Int32
	endpoints *endpoints
	hedges    hedgeBudget
}

// asked is one of the ways that a call was sent.
type asked struct {
	lane   int
	cancel context.CancelFunc
	conn   atomic.Pointer[agentConn] // once there is one
	since  atomic.Int64              // when it was got, in ns of heardAt
}

type laneAnswer struct {
	by   *asked
	resp *http.Response
	err  error
}

func newLanes(c ClientConfig, known *endpoints) *lanes {
	l := &lanes{endpoints: known}
	l.hedges.add(maxHedges * hedgeCost)
	for n := range l.each {
		l.each[n] = newTransport(newDialer(c, alpnHTTP2, known, n), streamWindow)
	}
	return l
}

// RoundTrip implements http.RoundTripper.
func (l *lanes) RoundTrip(req *http.Request) (*http.Response, error) {
	lane := int(l.first.Load())
	if t, ok := req.Context().Value(tryKey{}).(*try); !ok || !t.hedge || len(l.endpoints.broke) < 2 {
		return l.each[lane].RoundTrip(req)
	}
	l.hedges.earn()
	answers, over := make(chan laneAnswer), make(chan struct{})
	defer close(over)
	one := l.ask(req, lane, answers, over)
	defer one.cancel()
	var two *asked
	var failed error
	look := time.NewTimer(l.endpoints.silence())
	defer look.Stop()
	for {
		select {
		case a := <-answers:
			switch {
			case a.err == nil:
				l.won(a.by, one)
				return a.resp, nil
			case two == nil || failed != nil:
				return nil, a.err
			}
			failed = a.err // there is another one under way
		case <-look.C:
			if two == nil && l.silent(one) && l.hedges.take() {
				two = l.ask(l.elsewhere(req, one), 1-lane, answers, over)
				defer two.cancel()
			}
			look.Reset(l.endpoints.silence() / 4)
		}
	}
}

// CloseIdleConnections is called by http.Client's.
func (l *lanes) CloseIdleConnections() {
	for _, t := range l.each {
		t.CloseIdleConnections()
	}
}

// ask sends it by a lane. Its goroutine ends with the call: its context does.
func (l *lanes) ask(req *http.Request, lane int, answers chan<- laneAnswer, over <-chan struct{}) *asked {
	ctx, cancel := context.WithCancel(req.Context())
	by := &asked{lane: lane, cancel: cancel}
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		by.since.Store(heardAt())
		if conn, ok := info.Conn.(*agentConn); ok {
			by.conn.Store(conn)
		}
	}})
	go func() {
		resp, err := whole(l.each[lane].RoundTrip(req.Clone(ctx))) //nolint:bodyclose // whole does
		select {
		case answers <- laneAnswer{by, resp, err}:
		case <-over:
		}
	}()
	return by
}

// silent says whether nothing has come over the call's connection for as long as a hedge
// waits. An answer that is slow, over a connection on which others are answered, is not.
func (l *lanes) silent(a *asked) bool {
	conn := a.conn.Load()
	if conn == nil {
		return false // it is being made: see dial
	}
	return time.Duration(heardAt()-max(conn.heard.Load(), a.since.Load())) >= l.endpoints.silence()
}

type notByKey struct{}

// elsewhere is the request for the other lane, which is not to come to the same endpoint.
func (l *lanes) elsewhere(req *http.Request, one *asked) *http.Request {
	n := one.conn.Load().endpoint
	if other := l.each[1-one.lane]; int(l.endpoints.at[1-one.lane].Load()) == n {
		other.CloseIdleConnections()
	}
	return req.WithContext(context.WithValue(req.Context(), notByKey{}, n))
}

// won has calls go by the lane that was asked second, if it answered while the other was silent.
func (l *lanes) won(by, one *asked) {
	if by == one || !l.silent(one) {
		return
	}
	l.first.CompareAndSwap(int32(one.lane), int32(by.lane)) //nolint:gosec // 0 or 1
	one.conn.Load().lost()
	l.hedges.giveBack()
}

// wholeBody is an answer's that was read already.
type wholeBody struct {
	*bytes.Reader
	all []byte
}

// Close implements io.Closer.
func (wholeBody) Close() error { return nil }

// whole reads an answer to its end.
func whole(resp *http.Response, err error) (*http.Response, error) {
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	all, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, &brokenOffError{err}
	}
	resp.Body = wholeBody{bytes.NewReader(all), all}
	return resp, nil
}

// hedgeBudget bounds how many calls are asked twice, so that an agent that is slow because of
// its load does not get more of it. One that helped costs nothing.
type hedgeBudget struct {
	mu   sync.Mutex
	have int // in calls
}

func (b *hedgeBudget) add(calls int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.have+calls < 0 {
		return false
	}
	b.have = min(b.have+calls, maxHedges*hedgeCost)
	return true
}

func (b *hedgeBudget) earn()      { b.add(1) }
func (b *hedgeBudget) giveBack()  { b.add(hedgeCost) }
func (b *hedgeBudget) take() bool { return b.add(-hedgeCost) }

var clientBegan = time.Now()

// heardAt is the monotonic time, in ns.
func heardAt() int64 { return int64(time.Since(clientBegan)) }
