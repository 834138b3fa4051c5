package pressure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
	"github.com/pipeops/pipeops-vm-agent/test/charts"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// usualTime is how long the agent works, unless timeVariable has a duration.
const (
	usualTime    = 2 * time.Minute
	timeVariable = "PIPEOPS_TEST_PRESSURE_TIME"
)

const (
	// lightLimit is how long a light command may take beside everything else, on two busy cores.
	lightLimit = 30 * time.Second
	// hostileReleases is how many releases of the largest size there are.
	hostileReleases = 12
	// renderTime bounds how long a chart may have to wait for memory beside everything else.
	renderTime = 5 * time.Minute
	// deployTime is what a chart's pods get, whose images cannot be pulled here.
	deployTime = "3s"
)

// TestAgent_ShippedMemorySuffices gives the agent all that it takes at a time, and again after a
// restart, when it reads everything at once.
func TestAgent_ShippedMemorySuffices(t *testing.T) {
	suite.Release(t, "the agent with its shipped memory beside the largest Apps, sets, sources and releases, and popular charts")
	directory := charts.Directory(t)
	archives, err := filepath.Glob(filepath.Join(directory, "*.tgz"))
	require.NoError(t, err)
	require.NotEmpty(t, archives)
	c := dial(t)
	idle, err := sys.AgentGroup()
	require.NoError(t, err)
	apps := fillApps(t, c)
	fillReleases(t, hostileReleases)
	repo := follow(t, c)
	filled, err := sys.AgentGroup()
	require.NoError(t, err)
	t.Logf("idle: %d MiB of %d; beside %d Apps: %d MiB", idle.Used>>20, idle.Limit>>20, apps, filled.Used>>20)
	limit := workTime(t)
	for _, when := range []string{"as it was started", "after a restart"} {
		t.Run(when, func(t *testing.T) { work(t, c, archives, repo, limit) })
		require.NoError(t, sys.KillAgent(t.Context()))
		require.NoError(t, sys.AwaitAgent(t.Context()))
		limit = min(limit, usualTime)
	}
}

func workTime(t *testing.T) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(cmp.Or(os.Getenv(timeVariable), usualTime.String()))
	require.NoError(t, err, timeVariable)
	return d
}

func dial(t *testing.T) *client.Client {
	t.Helper()
	c, err := sys.Dial(t.Context(), runner, agentName)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// work does everything side by side for some time, and at least until each chart was rendered.
func work(t *testing.T, c *client.Client, archives []string, repo repository, limit time.Duration) {
	t.Helper()
	w := &watch{}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	until, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var beside, load sync.WaitGroup
	beside.Go(func() { w.measure(ctx) })
	beside.Go(func() { w.callLight(ctx, c) })

	load.Go(func() { w.render(until, t, c, archives) })
	load.Go(func() { w.deploy(until, t, c, archives) })
	for n, text := range [][]byte{largestSet(), mostValues(), largestSet()} {
		key := runnerapi.Key{Namespace: production, Name: fmt.Sprintf("set-%d", n)}
		load.Go(func() {
			every(until, time.Second, func() {
				_, err := c.Manifests().Apply(until, key, text, runnerapi.ApplyOptions{WriteOptions: runnerapi.WriteOptions{DryRun: true}})
				w.note("set of the largest size", err)
			})
		})
	}
	load.Go(func() {
		every(until, time.Second, func() {
			_, err := c.Releases().List(until, production)
			w.note("list of releases of the largest size", err)
		})
	})
	load.Go(func() {
		n := 0
		every(until, 20*time.Second, func() {
			n++
			repo.commit(n)
			_, err := c.Sources().Sync(until, runnerapi.Key{Namespace: production, Name: "deploy"}, runnerapi.WriteOptions{})
			w.note("source of the largest size", err)
		})
	})
	load.Wait()
	stop()
	beside.Wait()
	w.check(t)
}

// render has each chart be rendered and compared, one after another, at least once.
func (w *watch) render(until context.Context, t *testing.T, c *client.Client, archives []string) {
	for round := 0; round == 0 || until.Err() == nil; round++ {
		for _, archive := range archives {
			key, spec := chartOf(t, archive, "dry")
			err := w.renderOne(t, c, key, spec)
			assert.False(t, busy(err) || problem.Is(err, problem.TooLarge), "%s, %s long: %v", key.Name, renderTime, err)
		}
	}
}

// renderOne repeats the dry run of a chart while the agent is busy, as a Runner does, for some
// minutes. It returns the agent's last answer.
func (w *watch) renderOne(t *testing.T, c *client.Client, key runnerapi.Key, spec runnerapi.ReleaseSpec) (last error) {
	ctx, cancel := context.WithTimeout(t.Context(), renderTime)
	defer cancel()
	for {
		_, err := c.Releases().Deploy(ctx, key, spec, runnerapi.WriteOptions{DryRun: true})
		if ctx.Err() != nil {
			return cmp.Or(last, ctx.Err())
		}
		w.note("dry run of "+key.Name, err)
		if last = err; !busy(err) {
			return last
		}
	}
}

// busy is whether a later try of the same command may succeed.
func busy(err error) bool {
	return problem.Is(err, problem.Unavailable) || problem.Is(err, problem.TooManyRequests) || errors.Is(err, context.DeadlineExceeded)
}

// deploy installs each chart, upgrades it, returns, and uninstalls it.
func (w *watch) deploy(until context.Context, t *testing.T, c *client.Client, archives []string) {
	for until.Err() == nil {
		for _, archive := range archives {
			key, spec := chartOf(t, archive, "now")
			write := runnerapi.WriteOptions{}
			for _, step := range []struct {
				name string
				do   func() (runnerapi.Release, error)
			}{
				{"install", func() (runnerapi.Release, error) { return c.Releases().Deploy(until, key, spec, write) }},
				{"upgrade", func() (runnerapi.Release, error) { return c.Releases().Deploy(until, key, spec, write) }},
				{"rollback", func() (runnerapi.Release, error) {
					return c.Releases().Rollback(until, key, runnerapi.ReleaseRollback{Revision: 1, Timeout: deployTime}, write)
				}},
				{"uninstall", func() (runnerapi.Release, error) { return c.Releases().Delete(until, key, write) }},
			} {
				_, err := step.do()
				if until.Err() != nil {
					return
				}
				if err == nil {
					_, _ = c.Releases().Wait(until, key, func(runnerapi.Release) {}) // its pods do not get ready
				}
				w.note(step.name+" of a chart", err)
			}
		}
	}
}

func chartOf(t *testing.T, archive, prefix string) (runnerapi.Key, runnerapi.ReleaseSpec) {
	t.Helper()
	text, err := os.ReadFile(archive)
	assert.NoError(t, err)
	name, _, _ := strings.Cut(filepath.Base(archive), ".")
	return runnerapi.Key{Namespace: production, Name: prefix + "-" + strings.TrimRight(name, "0123456789-v")},
		runnerapi.ReleaseSpec{Chart: runnerapi.ChartSource{Archive: text}, Timeout: deployTime}
}

// outcome names how a command ended.
func outcome(err error) string {
	if p, ok := problem.Of(err); ok {
		return string(p.Code)
	}
	switch {
	case err == nil:
		return "done"
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return "the time was over"
	}
	return err.Error()
}
