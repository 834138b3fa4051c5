// Package load puts a load on an HTTP server and measures how it is carried: closed loops of
// clients, bulk transfers, and a line of a given delay between the two. It does not depend on what
// is between client and server.
package load

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/pipeops/pipeops-vm-agent/test/bench/run"
)

// The server's paths.
const (
	// PathSmall returns 1 KiB.
	PathSmall = "/small"
	// PathBulk returns ?size=BYTES, and counts what is posted.
	PathBulk = "/bulk"
)

const (
	block = 256 << 10
	// probe warms the connection and its windows up, and determines how much to send.
	probe = 32 << 20
	// largest bounds one transfer.
	largest = 4 << 30
)

// Handler returns the server's side of the load.
func Handler() http.Handler {
	mux := http.NewServeMux()
	small := make([]byte, 1<<10)
	mux.HandleFunc("GET "+PathSmall, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(small) })
	mux.HandleFunc("GET "+PathBulk, func(w http.ResponseWriter, r *http.Request) {
		size, _ := strconv.ParseInt(r.URL.Query().Get("size"), 10, 64)
		_, _ = copyBlocks(w, io.LimitReader(zeros{}, size)) // to the end, or until the client has gone
	})
	mux.HandleFunc("POST "+PathBulk, func(w http.ResponseWriter, r *http.Request) {
		if n, err := copyBlocks(io.Discard, r.Body); err == nil {
			fmt.Fprintln(w, n)
		}
	})
	return mux
}

// zeros never ends. What it holds does not matter: it is encrypted on its way.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// copyBlocks copies by large blocks, in place of a faster way that the two may have.
func copyBlocks(to io.Writer, from io.Reader) (int64, error) {
	return io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, make([]byte, block))
}

// Closed is the result of clients that each send their next request once the previous one was
// answered.
type Closed struct {
	// PerSecond is of the requests that ended in the time that was measured. P50 and P99 are of
	// those that began in it, in µs. To count only those that did both would leave out slow ones.
	PerSecond, P50, P99 float64
}

// RunClosed lets that many clients get the URL for the given time, after each has connected and all
// have warmed up. A failed request ends it.
func RunClosed(ctx context.Context, client *http.Client, url string, clients int, warmUp, measured time.Duration) Closed {
	run.Parallel(ctx, clients, -1, func(ctx context.Context, _ int) { Get(ctx, client, url) })
	did := make([]struct {
		took  []float64 // of those that began in time
		ended float64   // in time
	}, clients)
	begin := time.Now().Add(warmUp)
	end := begin.Add(measured)
	run.Parallel(ctx, clients, -1, func(ctx context.Context, i int) {
		for start := time.Now(); start.Before(end); start = time.Now() {
			Get(ctx, client, url)
			now := time.Now()
			if !start.Before(begin) {
				did[i].took = append(did[i].took, run.Milliseconds(now.Sub(start))*1e3)
			}
			if !now.Before(begin) && !now.After(end) {
				did[i].ended++
			}
		}
	})
	var took []float64
	ended := 0.0
	for _, d := range did {
		took = append(took, d.took...)
		ended += d.ended
	}
	return Closed{ended / measured.Seconds(), run.Percentile(took, 0.5), run.Percentile(took, 0.99)}
}

// Get gets a URL and reads its answer to the end.
func Get(ctx context.Context, client *http.Client, url string) {
	body := open(ctx, client, http.MethodGet, url, 0)
	defer func() { _ = body.Close() }()
	run.Must(io.Copy(io.Discard, body))
}

// open sends that many bytes, and returns the answer's body.
func open(ctx context.Context, client *http.Client, method, url string, size int64) io.ReadCloser {
	var sent io.Reader = http.NoBody
	if size > 0 {
		sent = io.LimitReader(zeros{}, size)
	}
	req := run.Must(http.NewRequestWithContext(ctx, method, url, sent))
	req.ContentLength = size
	resp := run.Must(client.Do(req))
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		run.Failf("%s: %s", url, resp.Status)
	}
	return resp.Body
}

// Down and Up are the directions of bulk: from the server, and to it.
const (
	Down = "down"
	Up   = "up"
)

// Bulk returns the rate of one transfer in bytes per second. An earlier transfer warms the
// connection up and determines how many bytes take about that long.
func Bulk(ctx context.Context, client *http.Client, base, direction string, about time.Duration) float64 {
	rate := transfer(ctx, client, base, direction, probe)
	return transfer(ctx, client, base, direction, int64(min(max(rate*about.Seconds(), probe), largest)))
}

// transfer returns the rate from the request to the last byte's being there.
func transfer(ctx context.Context, client *http.Client, base, direction string, size int64) float64 {
	start := time.Now()
	var got int64
	if direction == Down {
		body := open(ctx, client, http.MethodGet, fmt.Sprintf("%s%s?size=%d", base, PathBulk, size), 0)
		defer func() { _ = body.Close() }()
		got = run.Must(copyBlocks(io.Discard, body))
	} else {
		body := open(ctx, client, http.MethodPost, base+PathBulk, size)
		defer func() { _ = body.Close() }()
		run.Must(fmt.Fscan(body, &got))
	}
	if got != size {
		run.Failf("of %d bytes %s, %d arrived", size, direction, got)
	}
	return float64(size) / time.Since(start).Seconds()
}

// Beside begins a download without an end, with its own client: one that is read as fast as it
// comes, or one whose reader has stopped. The returned function ends it.
func Beside(ctx context.Context, client *http.Client, base string, fullSpeed bool) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	body := open(ctx, client, http.MethodGet, fmt.Sprintf("%s%s?size=%d", base, PathBulk, int64(1)<<50), 0)
	run.Must(io.CopyN(io.Discard, body, 64<<10))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if fullSpeed {
			_, _ = copyBlocks(io.Discard, body)
		}
		<-ctx.Done()
		_ = body.Close()
	}()
	return func() {
		cancel()
		<-ended
		client.CloseIdleConnections()
	}
}

// delayed is how many packets may be in flight in each direction of a connection: 256 MiB of large
// ones. At 20 ms one way they are reached at 12 GB/s, so the line limits no sender.
const delayed = 1 << 10

// Delay forwards a listener's connections to an address, and delays every byte: half a round trip.
// It does not limit the bandwidth: data in flight is in memory.
func Delay(ctx context.Context, ln net.Listener, target string, oneWay time.Duration) {
	for {
		near := run.Must(ln.Accept())
		go func() {
			far, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", target)
			if err != nil {
				_ = near.Close()
				return
			}
			go delay(far, near, oneWay)
			delay(near, far, oneWay)
		}()
	}
}

// delay copies bytes in one direction, and at their end the end.
func delay(dst, src net.Conn, oneWay time.Duration) {
	type packet struct {
		bytes []byte
		due   time.Time
	}
	line := make(chan packet, delayed)
	go func() {
		defer close(line)
		for buffer := make([]byte, block); ; {
			n, err := src.Read(buffer)
			line <- packet{bytes.Clone(buffer[:n]), time.Now().Add(oneWay)}
			if err != nil {
				return
			}
		}
	}()
	var err error
	for p := range line {
		time.Sleep(time.Until(p.due))
		if err == nil { // otherwise data in flight is lost
			if _, err = dst.Write(p.bytes); err != nil {
				_ = src.Close()
			}
		}
	}
	if err != nil || dst.(*net.TCPConn).CloseWrite() != nil {
		_, _ = dst.Close(), src.Close() // both ends are gone: there is nothing more to read
	}
}
