package command

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnertest"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// happened serves four events of the agent shop, two in a page, and a fifth a moment
// later.
func happened(t *testing.T) func(context.Context, string, string, announce.TimelineQuery) (announce.TimelinePage, error) {
	t.Helper()
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	var all []announce.Event
	add := func(e announce.Event, err error) {
		require.NoError(t, err)
		all = append(all, e)
	}
	add(announce.NewAgentEvent(announce.AgentOnline, "/controlplane", announce.Agent{ID: runnertest.AgentID, Name: "shop", State: announce.StateOnline}, 1, noon))
	for i, kind := range []announce.Type{announce.AppProgressing, announce.AppFailed, announce.AppHealthy, announce.AppDegraded} {
		app := announce.AppEvent{Namespace: "production", Name: "web", Image: "web:1", Replicas: 2}
		if kind == announce.AppFailed {
			app.Cause, app.Message = "ImageNotFound", "there is no\nimage web:1"
		}
		add(announce.NewAppEvent(kind, "/controlplane", runnertest.AgentID, app, uint64(i+2), noon.Add(time.Duration(i)*time.Minute)))
	}
	return func(_ context.Context, _, agentID string, q announce.TimelineQuery) (page announce.TimelinePage, err error) {
		if agentID != runnertest.AgentID {
			return page, problem.Errorf(problem.NotFound, "list them", "there is no agent with that ID")
		}
		events := slices.Clone(all)
		if q.After == 0 { // the fifth is there for whoever comes back
			events = events[:4]
		}
		if !q.OldestFirst {
			slices.Reverse(events)
		}
		for _, e := range events {
			app, _ := e.App()
			if q.App != "" && app.Name != q.App || q.Namespace != "" && app.Namespace != q.Namespace || e.Sequence <= q.After ||
				q.Before > 0 && e.Sequence >= q.Before || len(q.Types) > 0 && !slices.Contains(q.Types, e.Type) || e.Time.Before(q.Since) {
				continue
			}
			if page.More = len(page.Events) == min(q.Limit, 2); page.More {
				break
			}
			page.Events = append(page.Events, e)
		}
		return page, nil
	}
}

// TestTimeline_Follow prints past events, and then new ones.
func TestTimeline_Follow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	out, in := io.Pipe()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	code := make(chan int, 1)
	go func() {
		defer func() { _ = in.Close() }()
		code <- execute(ctx, []string{"--credentials", w.credentials, "timeline", "shop", "web", "-f", "--limit", "1"}, cmdutil.Streams{In: strings.NewReader(""), Out: in, Err: io.Discard})
	}()
	var text strings.Builder
	for b := make([]byte, 4096); !strings.Contains(text.String(), "app.degraded"); {
		n, err := out.Read(b)
		text.Write(b[:n])
		if errors.Is(err, io.EOF) {
			break
		}
	}
	cancel()
	_, _ = io.Copy(io.Discard, out)
	assert.Zero(t, await.Receive(t, code, "the end of the command"))
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	require.Len(t, lines, 2)
	assert.Contains(t, lines[0], "app.healthy")
	assert.Contains(t, lines[1], "app.degraded")
}
