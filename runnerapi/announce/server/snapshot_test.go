package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

var noon = time.Date(2026, 11, 19, 12, 0, 0, 0, time.UTC)

func asCI(*http.Request) (string, error) { return "ci", nil }

// serve puts a handler on loopback where the control plane has it.
func serve(t *testing.T, h http.Handler) *announce.SnapshotClient {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(announce.SnapshotPath, h)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return &announce.SnapshotClient{BaseURL: server.URL + "/", HTTPClient: server.Client()}
}

func agent(id string, sequence uint64, state announce.State) announce.Agent {
	return announce.Agent{ID: id, Name: "agent-" + id, State: state, Sequence: sequence, RegisteredAt: noon, LastSeen: noon}
}

func TestSnapshot_RoundTrip(t *testing.T) {
	want := []announce.Agent{agent("a1", 7, announce.StateOnline), agent("a2", 9, announce.StateRevoked)}
	client := serve(t, SnapshotHandler(func(_ context.Context, runner string) ([]announce.Agent, error) {
		assert.Equal(t, "ci", runner, "listed for")
		return want, nil
	}, asCI))
	got, err := client.Agents(t.Context())
	require.NoError(t, err)
	assert.Equal(t, want, got)
}

func TestSnapshot_Empty(t *testing.T) {
	client := serve(t, SnapshotHandler(func(context.Context, string) ([]announce.Agent, error) { return nil, nil }, asCI))
	if got, err := client.Agents(t.Context()); err != nil || got == nil || len(got) != 0 {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestSnapshot_Problems(t *testing.T) {
	none := func(context.Context, string) ([]announce.Agent, error) { return nil, nil }
	fails := func(err error) func(context.Context, string) ([]announce.Agent, error) {
		return func(context.Context, string) ([]announce.Agent, error) { return nil, err }
	}
	revoked := problem.Errorf(problem.Forbidden, "make a new one", "Runner ci was revoked")
	tests := []struct {
		name     string
		handler  http.Handler
		status   int
		code     problem.Code
		want     string
		mustHide string
	}{
		{"not identified", SnapshotHandler(none, func(*http.Request) (string, error) { return "", errors.New("secret detail") }),
			500, problem.Internal, "server's log", "secret"},
		{"revoked", SnapshotHandler(none, func(*http.Request) (string, error) { return "", revoked }), 403, problem.Forbidden, "make a new one", ""},
		{"broken", SnapshotHandler(fails(errors.New("secret detail")), asCI), 500, problem.Internal, "server's log", "secret"},
		{"not ours", http.NotFoundHandler(), 404, problem.NotFound, "server's URL", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			_, err := serve(t, test.handler).Agents(ctx)
			var p *problem.Error
			if !errors.As(err, &p) || p.Status != test.status || p.Code != test.code || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("got %v", err)
			}
			if test.mustHide != "" && strings.Contains(err.Error(), test.mustHide) {
				t.Errorf("shows what it must not: %v", err)
			}
		})
	}
}

func TestSnapshot_Retries(t *testing.T) {
	var tries atomic.Int32
	ours := SnapshotHandler(func(context.Context, string) ([]announce.Agent, error) {
		if tries.Add(1) < 3 {
			return nil, problem.Errorf(problem.Unavailable, "", "starting")
		}
		return []announce.Agent{agent("a1", 1, announce.StateOnline)}, nil
	}, asCI)
	if got, err := serve(t, ours).Agents(t.Context()); err != nil || len(got) != 1 {
		t.Errorf("got %v, %v after %d tries", got, err, tries.Load())
	}
}

func TestSnapshot_RefusesForeignResponse(t *testing.T) {
	big := `{"agents":[{"id":"` + strings.Repeat("x", 100)
	for name, body := range map[string]string{
		"a page": "<html>", "another object": `{"items":[]}`, "invalid agent": `{"agents":[{"id":"A!"}]}`, "cut off": big,
	} {
		client := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }))
		got, err := client.Agents(t.Context())
		assert.Error(t, err, "%s: took it for %v", name, got)
	}
}

func TestSnapshot_OnlyGet(t *testing.T) {
	client := serve(t, SnapshotHandler(func(context.Context, string) ([]announce.Agent, error) { return nil, nil }, asCI))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, client.BaseURL+strings.TrimPrefix(announce.SnapshotPath, "/"), nil)
	require.NoError(t, err)
	resp, err := client.HTTPClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	if p := problem.Read(resp); p.Code != problem.NotAllowed || resp.Header.Get("Content-Type") != problem.ContentType {
		t.Errorf("%s %+v", resp.Status, p)
	}
}
