package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Closed is the result of clients that each send their next request once the previous one was
// answered.
type Closed struct {
	Clients int
	// PerSecond is of the requests that ended in the time that was measured. P50 and P99 are of
	// those that began in it. To count only those that did both would leave out slow ones.
	PerSecond float64
	P50, P99  time.Duration
	// Answered are all requests, those included that began or ended outside of the time that was
	// measured.
	Answered int
}

// RunClosed lets that many clients get the URL for the given time, after each has connected and all
// have warmed up. A failed request ends it.
func RunClosed(ctx context.Context, client *http.Client, url string, clients int, warmUp, measured time.Duration) (Closed, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	each := func(do func(i int) error) {
		var all sync.WaitGroup
		for i := range clients {
			all.Go(func() {
				if err := do(i); err != nil {
					cancel(err)
				}
			})
		}
		all.Wait()
	}
	each(func(int) error { return Get(ctx, client, url) })
	did := make([]counted, clients)
	begin := time.Now().Add(warmUp)
	each(func(i int) (err error) {
		did[i], err = oneClient(ctx, client, url, begin, begin.Add(measured))
		return err
	})
	if err := context.Cause(ctx); err != nil {
		return Closed{}, fmt.Errorf("%d clients: %w", clients, err)
	}
	var every []time.Duration
	ended, all := 0, clients // each has made its connection with one
	for _, d := range did {
		every = append(every, d.took...)
		ended += d.ended
		all += d.answered
	}
	slices.Sort(every)
	return Closed{
		Clients: clients, PerSecond: float64(ended) / measured.Seconds(),
		P50: Percentile(every, 0.5), P99: Percentile(every, 0.99), Answered: all,
	}, nil
}

// counted are the requests of one client.
type counted struct {
	took            []time.Duration // of those that began in time
	ended, answered int             // in time, and in all
}

func oneClient(ctx context.Context, client *http.Client, url string, begin, end time.Time) (did counted, err error) {
	for ctx.Err() == nil {
		start := time.Now()
		if !start.Before(end) {
			break
		}
		if err := Get(ctx, client, url); err != nil {
			return counted{}, err
		}
		did.answered++
		now := time.Now()
		if !start.Before(begin) {
			did.took = append(did.took, now.Sub(start))
		}
		if !now.Before(begin) && !now.After(end) {
			did.ended++
		}
	}
	return did, nil
}

// Get gets a URL and reads its answer to the end.
func Get(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, resp.Status)
	}
	return err
}
