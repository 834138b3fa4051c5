package source_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/pipeops/pipeops-vm-agent/internal/source"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// TestSource_Watched has a replica that did not lead for a moment: the API server was away, and
// there was no other replica.
func TestSource_Watched(t *testing.T) {
	t.Parallel()
	clock := clocktesting.NewFakeClock(time.Now())
	p := open(t, clock)
	p.secret("correct horse")
	repo := p.git.Create(t, "shop/deploy.git")
	repo.Commit(map[string]string{"one.yaml": configMapFile("one", "first")})
	p.put("web", runnerapi.SourceSpec{Type: runnerapi.SourceManifests, Interval: runnerapi.MinSourceInterval.String()})
	require.Nil(t, p.settled("web").Error)
	p.leads.Store(false)
	p.idle.Store(0)
	await.Until(t, "a look is skipped", func() bool {
		clock.Step(runnerapi.MinSourceInterval) // again and again: the look may not be planned yet
		return p.idle.Load() > 0
	})
	p.leads.Store(true)
	p.keeper.Wake()

	second := repo.Commit(map[string]string{"one.yaml": configMapFile("one", "second")})
	p.reaches("web", second, func() { clock.Step(runnerapi.MinSourceInterval) })
	require.NoError(t, p.keeper.Delete(t.Context(), p.key("web"), runner))
}

// TestSource_StatusOfUID recreates the source while it is reconciled.
func TestSource_StatusOfUID(t *testing.T) {
	t.Parallel()
	p := open(t)
	p.leads.Store(false) // no replica looks at it
	p.secret("correct horse")
	p.git.Create(t, "shop/deploy.git")
	p.put("web", runnerapi.SourceSpec{Type: runnerapi.SourceManifests, Path: "before"})
	write, err := p.keeper.Held(t.Context(), p.key("web"))
	require.NoError(t, err)
	require.NoError(t, p.keeper.Delete(t.Context(), p.key("web"), runner))
	p.put("web", runnerapi.SourceSpec{Type: runnerapi.SourceManifests, Path: "after"})
	status := runnerapi.SourceStatus{ObservedGeneration: 1, Phase: runnerapi.SourceReady, Commit: strings.Repeat("a", 40)}
	require.Error(t, write(status))
	s, err := p.keeper.Get(t.Context(), p.key("web"))
	require.NoError(t, err)
	assert.Equal(t, runnerapi.SourcePending, s.Status.Phase)
	write, err = p.keeper.Held(t.Context(), p.key("web"))
	require.NoError(t, err)
	require.NoError(t, write(status))
	s, err = p.keeper.Get(t.Context(), p.key("web"))
	require.NoError(t, err)
	assert.Equal(t, runnerapi.SourceReady, s.Status.Phase)
}

type answers func(*http.Request) (*http.Response, error)

func (f answers) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func keeperOf(answer answers) *source.Keeper {
	return source.New(nil, source.Config{
		REST:      &rest.Config{Host: "http://kubernetes.invalid", Transport: answer},
		Namespace: "agent", Leads: func() bool { return true }, Log: zerolog.Nop(),
	})
}

// TestSource_GoneWithNamespace: a source whose namespace was deleted with it is not looked at
// again.
func TestSource_GoneWithNamespace(t *testing.T) {
	t.Parallel()
	p := open(t)
	p.keeper.Wake()
	await.Until(t, "it is forgotten", func() bool {
		return p.keeper.Look(t.Context(), runnerapi.Key{Namespace: "gone", Name: "web"}) == 0
	})
}

// TestSource_BacksOff counts lists of the sources.
func TestSource_BacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		lists := 0
		k := keeperOf(func(*http.Request) (*http.Response, error) {
			if lists++; lists > 100 {
				cancel()
			}
			return &http.Response{StatusCode: http.StatusInternalServerError, Body: io.NopCloser(strings.NewReader(""))}, nil
		})
		k.Wake()
		require.NoError(t, k.Run(ctx))
		assert.Greater(t, lists, 5, "it keeps trying")
		assert.Less(t, lists, 50)
	})
}

// TestSource_Shares: sources of a namespace, or of a Runner, that take long leave a worker to those
// of others.
func TestSource_Shares(t *testing.T) {
	t.Run("by namespace", func(t *testing.T) { shares(t, "slow", "slow", "slow") })
	t.Run("by Runner", func(t *testing.T) { shares(t, "slow-1", "slow-2", "slow-3") })
}

// shares has a Runner's sources in these namespaces be looked at before one of another Runner.
func shares(t *testing.T, slow ...string) {
	t.Helper()
	heard := make(chan struct{})
	heardOnce := sync.OnceFunc(func() { close(heard) })
	k := keeperOf(func(r *http.Request) (*http.Response, error) {
		if strings.Contains(r.URL.Path, "/slow") {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}
		heardOnce()
		return nil, errors.New("connection refused")
	})
	for n, namespace := range slow {
		k.Add("greedy", runnerapi.Key{Namespace: namespace, Name: strconv.Itoa(n)})
	}
	k.Add("modest", runnerapi.Key{Namespace: "other", Name: "c"})
	await.Background(t, "the Keeper", k.Run)
	await.Closed(t, heard, "a look at another namespace's source")
}

func TestSource_RetriesTransientSoon(t *testing.T) {
	k := keeperOf(func(*http.Request) (*http.Response, error) { return nil, errors.New("connection refused") })
	assert.LessOrEqual(t, k.Look(t.Context(), runnerapi.Key{Namespace: "shop", Name: "web"}), time.Minute, "the namespace could not be read")
	busy := fmt.Errorf("read the Secret of source shop/web: %w", apierrors.NewServiceUnavailable("etcd has no leader"))
	assert.LessOrEqual(t, k.Again(busy, time.Hour), time.Minute)
	assert.Greater(t, k.Again(errors.New("the agent's own fault"), time.Hour), 50*time.Minute)
}
