package dashboard

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/app/sizing"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// TestSamples_LastHour has a value for each minute of the last hour, and a gap where metrics-server
// was away.
func TestSamples_LastHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web, asked := runnerapi.Key{Namespace: "shop", Name: "web"}, 0
		s := newSamples(func(context.Context) (map[runnerapi.Key]sizing.AppUse, error) {
			if asked++; asked == 80 {
				return nil, errors.New("away")
			}
			return map[runnerapi.Key]sizing.AppUse{web: {CPU: int64(asked), Memory: 1 << 20}}, nil
		}, time.Now)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); s.run(ctx) }()
		synctest.Wait()
		charts, err := s.charts(web)
		require.NoError(t, err)
		assert.Equal(t, "0.001 cores", charts[0].Last, "the first value comes at once")
		assert.Len(t, charts[0].Points, 1)

		time.Sleep(100*time.Minute + 40*time.Second)
		synctest.Wait()
		charts, err = s.charts(web)
		require.NoError(t, err)
		assert.Len(t, charts[0].Points, samplesKept-1)
		assert.Equal(t, time.Hour-time.Minute, charts[0].End.Sub(charts[0].Start))
		assert.Equal(t, "1 Mi", charts[1].Last)
		cancel()
		<-done
	})
}

func TestSamples_Bounded(t *testing.T) {
	now, used := time.Now(), map[runnerapi.Key]sizing.AppUse{}
	s := newSamples(func(context.Context) (map[runnerapi.Key]sizing.AppUse, error) { return used, nil }, func() time.Time { return now })
	for i := range maxSampled + 10 {
		used[runnerapi.Key{Name: fmt.Sprint(i)}] = sizing.AppUse{}
	}
	s.take(t.Context())
	assert.Len(t, s.apps, maxSampled)
	used = nil
	now = now.Add(samplesKept * time.Minute)
	s.take(t.Context())
	assert.Empty(t, s.apps, "Apps that are gone are forgotten")
}
