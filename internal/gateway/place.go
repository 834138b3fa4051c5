package gateway

import (
	"cmp"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
	"github.com/pipeops/pipeops-vm-agent/internal/traffic"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// place is that of a request among what is in progress, with what is counted of it.
type place struct {
	host  string
	leave func()

	counts  *traffic.Host
	log     *traffic.AccessLog
	began   time.Time
	latency time.Duration // until the backend began its answer, or traffic.NoLatency
	status  int           // of an answer that the writer does not see; zero otherwise
	counted bool          // a stream is when it begins
	conn    *upgraded     // nil of other than an upgraded connection
}

// statusGone is what is counted of a visitor who has left before there was an answer, as in nginx.
const statusGone = 499

// entered returns the place of a request that a route takes.
func entered(route *Route, r *http.Request) *place {
	at := &place{host: route.Host, leave: func() {}, began: time.Now(), latency: traffic.NoLatency}
	if !isCheck(r) {
		at.counts, at.log = route.counts, route.log
	}
	return at
}

// isCheck reports whether a request is the gateway's own. What it says of its client is not a
// visitor's to say.
func isCheck(r *http.Request) bool {
	if r.Method != http.MethodHead || r.UserAgent() != gatewaywire.CheckAgent {
		return false
	}
	address, err := netip.ParseAddr(r.Header.Get("X-Real-Ip"))
	return err == nil && address.IsLoopback()
}

// answered notes that the backend has begun its answer. One that may go on for long is counted now.
func (at *place) answered(resp *http.Response, stays bool) {
	at.latency = time.Since(at.began)
	if resp.StatusCode == http.StatusSwitchingProtocols {
		at.status = resp.StatusCode
		if conn, ok := resp.Body.(io.ReadWriteCloser); ok {
			at.conn = &upgraded{ReadWriteCloser: conn}
			resp.Body = at.conn
		}
	}
	if stays {
		at.counted = true
		at.counts.Request(time.Now(), resp.StatusCode, "", at.latency, 0, 0)
	}
}

// ended counts a request, and logs it where that is wanted.
func (at *place) ended(w *gatewaywire.Answer, r, in *http.Request) {
	if at.counts == nil && at.log == nil {
		return
	}
	now, failed := time.Now(), w.Header().Get(gatewaywire.HeaderFailed)
	status, received, sent := cmp.Or(w.Status(), at.status, statusGone), w.Received(), w.Sent()
	if at.conn != nil {
		received, sent = received+at.conn.received.Load(), sent+at.conn.sent.Load()
	}
	switch {
	case at.counted:
		at.counts.Bytes(now, received, sent)
	default:
		if failed == gatewaywire.TimedOut {
			at.latency = now.Sub(at.began)
		}
		at.counts.Request(now, status, failed, at.latency, received, sent)
	}
	if at.log == nil {
		return
	}
	path, _, _ := strings.Cut(gatewaywire.Target(in), "?")
	at.log.Add(now, runnerapi.AccessEntry{
		RequestID: r.Header.Get("X-Request-Id"), Host: r.Host, Method: r.Method, Path: path, Status: status, Failed: failed,
		Received: received, Sent: sent, DurationMillis: float64(now.Sub(at.began).Microseconds()) / 1000,
		Address: r.Header.Get("X-Real-Ip"), UserAgent: r.UserAgent(),
	})
}

// upgraded counts the bytes of an upgraded connection to a backend.
type upgraded struct {
	io.ReadWriteCloser
	received, sent atomic.Int64 // of the visitor, and to it
}

// Read implements io.Reader.
func (u *upgraded) Read(p []byte) (int, error) {
	n, err := u.ReadWriteCloser.Read(p)
	u.sent.Add(int64(n))
	return n, err
}

// Write implements io.Writer.
func (u *upgraded) Write(p []byte) (int, error) {
	n, err := u.ReadWriteCloser.Write(p)
	u.received.Add(int64(n))
	return n, err
}

// CloseWrite ends one direction.
func (u *upgraded) CloseWrite() error {
	if half, ok := u.ReadWriteCloser.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
