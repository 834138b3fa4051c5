package pressure

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/cgroup"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
)

// watch is what is seen of the agent while it works.
type watch struct {
	mu      sync.Mutex
	peak    int64 // bytes of its control group, without pages of files
	limit   int64
	kills   int64
	slowest time.Duration // light command
	served  int
	failed  []error // light commands
	ended   map[string]int
}

// note counts how a command ended.
func (w *watch) note(what string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended == nil {
		w.ended = map[string]int{}
	}
	w.ended[what+": "+outcome(err)]++
}

// measure samples the agent's memory until ctx ends.
func (w *watch) measure(ctx context.Context) {
	every(ctx, 50*time.Millisecond, func() {
		if m, err := sys.AgentGroup(); err == nil {
			w.see(m)
		}
	})
}

func (w *watch) see(m cgroup.Memory) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.peak, w.limit, w.kills = max(w.peak, m.Used), m.Limit, max(w.kills, m.Kills)
}

// callLight sends light commands until ctx ends.
func (w *watch) callLight(ctx context.Context, c *client.Client) {
	every(ctx, 200*time.Millisecond, func() {
		began := time.Now()
		call, cancel := context.WithTimeout(ctx, lightLimit)
		defer cancel()
		_, err := c.Cluster().Get(call)
		if err == nil {
			_, err = c.Namespaces().List(call)
		}
		if ctx.Err() != nil {
			return
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.served++
		w.slowest = max(w.slowest, time.Since(began))
		if err != nil {
			w.failed = append(w.failed, err)
		}
	})
}

// every does something until ctx ends.
func every(ctx context.Context, interval time.Duration, do func()) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			do()
		case <-ctx.Done():
			return
		}
	}
}

// check requires that nothing was killed and that every light command was answered.
func (w *watch) check(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	t.Logf("at most %d MiB of %d; %d light commands, the slowest took %s", w.peak>>20, w.limit>>20, w.served, w.slowest.Round(time.Millisecond))
	for what, n := range w.ended {
		t.Logf("%4d  %s", n, what)
	}
	assert.Zero(t, w.kills, "processes that the kernel killed")
	assert.NotZero(t, w.served)
	assert.Empty(t, w.failed, "light commands")
	pods, err := sys.Kube.Clientset.CoreV1().Pods("pipeops").List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=pipeops-agent"})
	require.NoError(t, err)
	for i := range pods.Items {
		for _, c := range pods.Items[i].Status.ContainerStatuses {
			assert.Zero(t, c.RestartCount, "restarts of the agent: %s", ended(c.LastTerminationState))
		}
	}
}

func ended(s corev1.ContainerState) string {
	if s.Terminated == nil {
		return "not told"
	}
	return fmt.Sprintf("%s, exit code %d", s.Terminated.Reason, s.Terminated.ExitCode)
}
