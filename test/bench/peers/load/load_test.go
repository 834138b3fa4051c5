package load

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// slow answers each request after a while.
type slow time.Duration

func (s slow) RoundTrip(*http.Request) (*http.Response, error) {
	time.Sleep(time.Duration(s)) // of the bubble
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

// TestRunClosed_CountsSlowRequests: each takes nearly as long as the measurement.
func TestRunClosed_CountsSlowRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const took = 200 * time.Millisecond
		got := RunClosed(t.Context(), &http.Client{Transport: slow(took)}, "http://x", 50, 100*time.Millisecond, 250*time.Millisecond)
		assert.InDelta(t, 250, got.PerSecond, 51)
		assert.InDelta(t, 200_000, got.P50, 0)
		assert.InDelta(t, 200_000, got.P99, 0)
		assert.Equal(t, 3*50, got.Answered, "those before and after count, too")
	})
}
