package dashboard

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/app/sizing"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/internal/web"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const (
	// sampleStep is how often metrics-server is asked, and samplesKept how many answers are kept.
	sampleStep  = time.Minute
	samplesKept = 60
	// maxSampled is of how many Apps samples are kept: some 1.5 KiB each.
	maxSampled = 1000
)

// samples are what Apps used in each minute of the last hour. They need metrics-server alone. They
// are kept in memory, from the start of the dashboard on.
type samples struct {
	list func(ctx context.Context) (map[runnerapi.Key]sizing.AppUse, error)
	now  func() time.Time

	mu   sync.Mutex
	apps map[runnerapi.Key]*[samplesKept]sample
	err  error // of the last request
}

// sample is what an App used in a minute, which is counted since 1970.
type sample struct {
	minute int64
	use    sizing.AppUse
}

func newSamples(list func(context.Context) (map[runnerapi.Key]sizing.AppUse, error), now func() time.Time) *samples {
	return &samples{list: list, now: now, apps: map[runnerapi.Key]*[samplesKept]sample{}}
}

// run takes samples until ctx ends: now, then in the middle of each minute, so that none is left
// out.
func (s *samples) run(ctx context.Context) {
	for {
		s.take(ctx)
		now := s.now()
		if !retry.Wait(ctx, now.Truncate(sampleStep).Add(sampleStep+sampleStep/2).Sub(now)) {
			return
		}
	}
}

// take asks metrics-server once for all Apps.
func (s *samples) take(ctx context.Context) {
	asking, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	used, err := s.list(asking)
	if errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
	minute := minuteOf(s.now())
	for key, use := range used {
		if s.apps[key] == nil {
			if len(s.apps) >= maxSampled {
				continue
			}
			s.apps[key] = new([samplesKept]sample)
		}
		s.apps[key][minute%samplesKept] = sample{minute, use}
	}
	for key, kept := range s.apps {
		if newest(kept) <= minute-samplesKept {
			delete(s.apps, key)
		}
	}
}

// charts returns an App's CPU and memory in the last hour, and why the last request failed.
func (s *samples) charts(key runnerapi.Key) ([]web.Chart, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := s.apps[key]
	if kept == nil {
		return nil, s.err
	}
	first := minuteOf(s.now()) - samplesKept + 1
	cpu, memory := make([]*float64, samplesKept), make([]*float64, samplesKept)
	for i := range cpu {
		if at := kept[(first+int64(i))%samplesKept]; at.minute == first+int64(i) {
			cpu[i], memory[i] = new(float64(at.use.CPU)/1000), new(float64(at.use.Memory))
		}
	}
	start := time.Unix(first*int64(sampleStep/time.Second), 0)
	return []web.Chart{
		web.NewChart("CPU", coresUsed, start, sampleStep, cpu), web.NewChart("Memory", bytesUsed, start, sampleStep, memory),
	}, s.err
}

func minuteOf(at time.Time) int64 { return at.Unix() / int64(sampleStep/time.Second) }

func newest(kept *[samplesKept]sample) (minute int64) {
	for _, s := range kept {
		minute = max(minute, s.minute)
	}
	return minute
}
