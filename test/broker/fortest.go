package broker

import (
	"context"
	"strings"
	"testing"
	"time"
)

// ForTest brings a broker up for one test and down after it. Under -short the test
// is skipped.
func ForTest(t testing.TB, opts Options) *Broker {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a real RabbitMQ")
	}
	if opts.Name == "" {
		opts.Name = "test-" + strings.ToLower(secret()[:8])
	}
	ctx, cancel := context.WithTimeout(context.Background(), 12*time.Minute)
	defer cancel()
	b, err := Up(ctx, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := b.Down(ctx); err != nil {
			t.Errorf("bring the broker down: %v", err)
		}
	})
	return b
}
