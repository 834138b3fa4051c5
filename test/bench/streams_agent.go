package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pipeops/pipeops-vm-agent/test/harness"
)

const (
	// sampleInterval is how often the agent's memory is measured.
	sampleInterval = time.Second / 4
	// idleTimeout is how long unused connections may stay.
	idleTimeout = 2 * time.Minute
)

// memory holds samples of the agent's resident memory, in order of time.
type memory struct {
	mu      sync.Mutex
	samples []int64
	err     error
}

// watchMemory samples until the returned function is called.
func (b *streams) watchMemory(ctx context.Context) (end func() (*memory, error)) {
	m := &memory{}
	sample := func() {
		n, err := b.sys.AgentMemory(ctx)
		m.mu.Lock()
		defer m.mu.Unlock()
		if err != nil {
			m.err = err
			return
		}
		m.samples = append(m.samples, n)
	}
	sample()
	stop := b.every(sampleInterval, sample)
	return func() (*memory, error) {
		stop()
		sample()
		return m, m.err
	}
}

// growth returns how much the highest sample of the second half exceeds that of the first.
func (m *memory) growth() int64 {
	half := len(m.samples) / 2
	return highest(m.samples[half:]) - highest(m.samples[:half])
}

func highest(samples []int64) (most int64) {
	for _, n := range samples {
		most = max(most, n)
	}
	return most
}

// numbers returns the agent's metrics, by name with labels.
func (b *streams) numbers(ctx context.Context) (map[string]float64, error) {
	pod, err := b.sys.AgentPod(ctx)
	if err != nil {
		return nil, err
	}
	text, err := b.kube.CoreV1().Pods(pod.Namespace).ProxyGet("http", pod.Name, agentMetricsPort, "/metrics", nil).DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the agent's metrics: %w", err)
	}
	found := map[string]float64{}
	for scan := bufio.NewScanner(bytes.NewReader(text)); scan.Scan(); {
		if name, value, ok := strings.Cut(scan.Text(), " "); ok && name != "#" {
			if found[name], err = strconv.ParseFloat(value, 64); err != nil {
				return nil, fmt.Errorf("the agent's metrics: %q: %w", scan.Text(), err)
			}
		}
	}
	return found, nil
}

// The metrics that are used.
const (
	callsOpen  = "pipeops_agent_calls_open"
	goroutines = "go_goroutines"
	logsEnded  = `pipeops_agent_command_duration_seconds_count{call="get-app-logs",code="2xx"}`
	logsFailed = `pipeops_agent_command_duration_seconds_count{call="get-app-logs",code="5xx"}`
)

func (b *streams) number(ctx context.Context, name string) (float64, error) {
	all, err := b.numbers(ctx)
	return all[name], err
}

// awaitNumber waits until a metric has a suitable value. It returns the value, also if the wait
// times out.
func (b *streams) awaitNumber(ctx context.Context, timeout time.Duration, name string, fits func(float64) bool) (n float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_ = harness.Eventually(ctx, name+" is as wanted", func(ctx context.Context) error {
		now, failed := b.number(ctx, name)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		n, err = now, failed
		if err == nil && !fits(n) {
			return fmt.Errorf("it is %v", n)
		}
		return err
	})
	return n, err
}
