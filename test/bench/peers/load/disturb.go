package load

import (
	"context"
	"fmt"
	"io"
	"net/http"
)

// Disturbance is a download that runs beside the measurement.
type Disturbance string

// Alone is none; Stalled is one whose reader has stopped, FullSpeed one that is read as
// fast as it comes.
const (
	Alone     Disturbance = "alone"
	Stalled   Disturbance = "stalled"
	FullSpeed Disturbance = "full speed"
)

// Begin starts the download with a client of its own. stop ends it and waits for that.
func (d Disturbance) Begin(ctx context.Context, client *http.Client, base string) (stop func(), err error) {
	if d == Alone {
		return func() {}, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	body, err := Open(ctx, client, base, 1<<50)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("a download beside: %w", err)
	}
	if _, err := io.CopyN(io.Discard, body, 64<<10); err != nil {
		cancel()
		return nil, fmt.Errorf("a download beside: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if d == FullSpeed {
			_, _ = io.CopyBuffer(onlyWriter{io.Discard}, body, make([]byte, 256<<10))
		}
		<-ctx.Done()
		_ = body.Close()
	}()
	return func() {
		cancel()
		<-ended
		client.CloseIdleConnections()
	}, nil
}
