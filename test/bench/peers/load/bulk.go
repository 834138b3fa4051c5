package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Direction is which way bulk goes.
type Direction string

// Down is from the server, Up to it.
const (
	Down Direction = "down"
	Up   Direction = "up"
)

const (
	// probe warms the connection and its windows up, and determines how much to send.
	probe = 32 << 20
	// largest bounds one transfer.
	largest = 4 << 30
)

// Bulk returns the rate of one transfer in bytes per second, and the size of all. An earlier
// transfer warms the connection up and determines how many bytes take about that long.
func Bulk(ctx context.Context, client *http.Client, base string, way Direction, about time.Duration) (rate float64, moved int64, err error) {
	rate, err = transfer(ctx, client, base, way, probe)
	if err != nil {
		return 0, 0, err
	}
	size := int64(min(max(rate*about.Seconds(), probe), largest))
	rate, err = transfer(ctx, client, base, way, size)
	return rate, probe + size, err
}

// transfer returns the rate from the request to the last byte's being there.
func transfer(ctx context.Context, client *http.Client, base string, way Direction, size int64) (float64, error) {
	start := time.Now()
	var got int64
	var err error
	if way == Down {
		got, err = download(ctx, client, base, size)
	} else {
		got, err = upload(ctx, client, base, size)
	}
	if err == nil && got != size {
		err = fmt.Errorf("%d bytes arrived", got)
	}
	if err != nil {
		return 0, fmt.Errorf("%d bytes %s: %w", size, way, err)
	}
	return float64(size) / time.Since(start).Seconds(), nil
}

func download(ctx context.Context, client *http.Client, base string, size int64) (int64, error) {
	body, err := Open(ctx, client, base, size)
	if err != nil {
		return 0, err
	}
	got, err := io.CopyBuffer(onlyWriter{io.Discard}, body, make([]byte, 256<<10))
	return got, errors.Join(err, body.Close())
}

// Open begins a download of that size.
func Open(ctx context.Context, client *http.Client, base string, size int64) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s%s?size=%d", base, PathBulk, size), nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

func upload(ctx context.Context, client *http.Client, base string, size int64) (int64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+PathBulk, io.LimitReader(zeros{}, size))
	if err != nil {
		return 0, err
	}
	req.ContentLength = size
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	var got int64
	_, err = fmt.Fscan(resp.Body, &got)
	return got, err
}

// zeros never ends. What it holds does not matter: it is encrypted on its way.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// onlyWriter hides that io.Discard reads by itself, 8 KiB at a time.
type onlyWriter struct{ io.Writer }
