package server

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// serveTimeline serves timelines as the control plane does, and notes the questions.
func serveTimeline(t *testing.T, page announce.TimelinePage, err error) (*announce.SnapshotClient, *announce.TimelineQuery) {
	t.Helper()
	var asked announce.TimelineQuery
	mux := http.NewServeMux()
	mux.Handle("GET "+announce.TimelinePath, TimelineHandler(func(_ context.Context, runner, agentID string, q announce.TimelineQuery) (announce.TimelinePage, error) {
		assert.True(t, runner == "ci" && agentID == "a1", "asked by %q for %q", runner, agentID)
		asked = q
		return page, err
	}, asCI))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return &announce.SnapshotClient{BaseURL: server.URL + "/", HTTPClient: server.Client()}, &asked
}

func TestTimeline_RoundTrip(t *testing.T) {
	ofApp, err := announce.NewAppEvent(announce.AppFailed, "/controlplane", "a1", announce.AppEvent{Namespace: "shop", Name: "web"}, 7, noon)
	require.NoError(t, err)
	ofAgent, err := announce.NewAgentEvent(announce.AgentOnline, "/controlplane", agent("a1", 6, announce.StateOnline), 6, noon)
	require.NoError(t, err)
	want := announce.TimelinePage{Events: []announce.Event{ofApp, ofAgent}, More: true}
	client, asked := serveTimeline(t, want, nil)
	q := announce.TimelineQuery{
		Namespace: "a b", App: "web&x", Types: []announce.Type{announce.AppFailed, "agent.online"}, Since: noon.Add(time.Nanosecond),
		Before: 9, After: 3, OldestFirst: true, Limit: 7,
	}
	got, err := client.Timeline(t.Context(), "a1", q)
	require.NoError(t, err)
	require.True(t, got.More && len(got.Events) == 2, "got %+v, %v", got, err)
	for i, e := range got.Events {
		if e.ID != want.Events[i].ID || e.Sequence != want.Events[i].Sequence || !e.Time.Equal(want.Events[i].Time) {
			t.Errorf("event %d: %+v", i, e)
		}
	}
	assert.True(t, asked.Since.Equal(q.Since), "since %s", asked.Since)
	asked.Since = q.Since
	assert.Equal(t, q, *asked)
	next := got.Next(q)
	assert.True(t, next.After == 6 && next.Before == 9, "next %+v", next)
	next = got.Next(announce.TimelineQuery{})
	assert.EqualValues(t, 6, next.Before, "next %+v", next)
	if _, err := client.Timeline(t.Context(), "a1", announce.TimelineQuery{}); err != nil || asked.Limit != announce.DefaultTimelineLimit {
		t.Errorf("asked %+v, %v", *asked, err)
	}
	if _, err := client.Timeline(t.Context(), "../a2", announce.TimelineQuery{}); err == nil || !strings.Contains(err.Error(), "ID") {
		t.Errorf("an ID that is a path: %v", err)
	}
}

func TestTimeline_Problems(t *testing.T) {
	gone := problem.Errorf(problem.NotFound, "list them", "no such agent")
	client, _ := serveTimeline(t, announce.TimelinePage{}, gone)
	var p *problem.Error
	if _, err := client.Timeline(t.Context(), "a1", announce.TimelineQuery{}); !errors.As(err, &p) || p.Code != problem.NotFound || p.Fix != "list them" {
		t.Errorf("got %v", err)
	}
	client, _ = serveTimeline(t, announce.TimelinePage{}, nil)
	if page, err := client.Timeline(t.Context(), "a1", announce.TimelineQuery{}); err != nil || page.More || len(page.Events) != 0 {
		t.Errorf("nothing: %+v, %v", page, err)
	}
	for query, field := range map[string]string{
		"before=-1": "before", "after=x": "after", "limit=0": "limit", "before=18446744073709551615": "before", "since=yesterday": "since",
		"order=up": "order", "type=nonsense": "type", "app=web": "namespace", "colour=red": "colour", "limit=1&limit=2": "limit",
		strings.Repeat("type=app.failed&", 30): "type",
	} {
		values, err := url.ParseQuery(query)
		require.NoError(t, err)
		if _, err := parseTimelineQuery(values); !errors.As(err, &p) || p.Field != "query."+field || p.Fix == "" || p.Status != http.StatusUnprocessableEntity {
			t.Errorf("%s: %v", query, err)
		}
	}
	if q, err := parseTimelineQuery(url.Values{"limit": {"100000"}}); err != nil || q.Limit != announce.MaxTimelineLimit {
		t.Errorf("a large limit: %+v, %v", q, err)
	}
	for name, body := range map[string]string{"a page": "<html>", "another object": `{"items":[]}`, "no event": `{"events":[{}]}`, "endless": strings.Repeat(" ", announce.MaxTimelinePage+1)} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }))
		client := &announce.SnapshotClient{BaseURL: server.URL}
		got, err := client.Timeline(t.Context(), "a1", announce.TimelineQuery{})
		assert.Error(t, err, "%s: took it for %+v", name, got)
		server.Close()
	}
}

func FuzzParseTimelineQuery(f *testing.F) {
	f.Add("namespace=n&app=a&type=app.failed&since=2026-01-01T00:00:00Z&before=9&limit=5&order=oldest")
	f.Fuzz(func(t *testing.T, query string) {
		values, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		q, err := parseTimelineQuery(values)
		if err == nil && (q.Limit < 1 || q.Limit > announce.MaxTimelineLimit || q.Before > 1<<63-1) {
			t.Errorf("%s: %+v", query, q)
		}
		if e := (&problem.Error{}); err != nil && !errors.As(err, &e) {
			t.Errorf("%s: %v", query, err)
		}
	})
}

// Each documented parameter is read, and each field of an event is documented.
func TestOpenAPI_MatchesHandler(t *testing.T) {
	w := httptest.NewRecorder()
	OpenAPIHandler("v1").ServeHTTP(w, httptest.NewRequest(http.MethodGet, OpenAPIPath, nil))
	var doc struct {
		Paths map[string]map[string]struct {
			Parameters []struct{ Name, In string }
		}
		Components struct {
			Schemas map[string]struct{ Properties map[string]any }
		}
	}
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &doc))
	examples := url.Values{
		"namespace": {"n"}, "app": {"a"}, "type": {"app.failed"}, "since": {"2026-01-01T00:00:00Z"}, "before": {"1"}, "after": {"1"}, "order": {"oldest"}, "limit": {"1"},
	}
	if _, err := parseTimelineQuery(examples); err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, p := range doc.Paths[announce.TimelinePath]["get"].Parameters {
		if p.In == "query" {
			found++
			assert.True(t, examples.Has(p.Name), "parameter %s is documented and not read", p.Name)
		}
	}
	assert.Equal(t, len(examples), found)
	app := announce.AppEvent{Namespace: "shop", Name: "web", Cause: "ImageNotFound", Message: "web:2 does not exist", Fix: "push it"}
	e, err := announce.NewAppEvent(announce.AppFailed, "/controlplane", "a1", app, 7, time.Now())
	require.NoError(t, err)
	raw, err := e.Encode()
	require.NoError(t, err)
	var fields map[string]any
	require.NoError(t, json.Unmarshal(raw, &fields))
	for name := range fields {
		_, ok := doc.Components.Schemas["EventBody"].Properties[name]
		assert.True(t, ok, "an event has %s, which is not documented", name)
	}
}
