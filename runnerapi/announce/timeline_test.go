package announce

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// serveTimeline serves timelines as the control plane does, and notes the questions.
func serveTimeline(t *testing.T, page TimelinePage, err error) (*SnapshotClient, *TimelineQuery) {
	t.Helper()
	var asked TimelineQuery
	mux := http.NewServeMux()
	mux.Handle("GET "+TimelinePath, TimelineHandler(func(_ context.Context, runner, agentID string, q TimelineQuery) (TimelinePage, error) {
		if runner != "ci" || agentID != "a1" {
			t.Errorf("asked by %q for %q", runner, agentID)
		}
		asked = q
		return page, err
	}, asCI))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return &SnapshotClient{BaseURL: server.URL + "/", HTTPClient: server.Client()}, &asked
}

func TestATimelineCrossesTheWire(t *testing.T) {
	want := TimelinePage{Events: []Event{appEvent(t, AppFailed, "a1", 7), stateEvent(t, AgentOnline, "a1", 6, StateOnline)}, More: true}
	client, asked := serveTimeline(t, want, nil)
	q := TimelineQuery{
		Namespace: "a b", App: "web&x", Types: []Type{AppFailed, "agent.online"}, Since: noon.Add(time.Nanosecond),
		Before: 9, After: 3, OldestFirst: true, Limit: 7,
	}
	got, err := client.Timeline(t.Context(), "a1", q)
	if err != nil || !got.More || len(got.Events) != 2 {
		t.Fatalf("got %+v, %v", got, err)
	}
	for i, e := range got.Events {
		if e.ID != want.Events[i].ID || e.Sequence != want.Events[i].Sequence || !e.Time.Equal(want.Events[i].Time) {
			t.Errorf("event %d: %+v", i, e)
		}
	}
	if !asked.Since.Equal(q.Since) {
		t.Errorf("since %s", asked.Since)
	}
	if asked.Since = q.Since; !reflect.DeepEqual(*asked, q) {
		t.Errorf("asked %+v, heard %+v", q, *asked)
	}
	if next := got.Next(q); next.After != 6 || next.Before != 9 {
		t.Errorf("next %+v", next)
	}
	if next := got.Next(TimelineQuery{}); next.Before != 6 {
		t.Errorf("next %+v", next)
	}
	if _, err := client.Timeline(t.Context(), "a1", TimelineQuery{}); err != nil || asked.Limit != DefaultTimelineLimit {
		t.Errorf("asked %+v, %v", *asked, err)
	}
	if _, err := client.Timeline(t.Context(), "../a2", TimelineQuery{}); err == nil || !strings.Contains(err.Error(), "ID") {
		t.Errorf("an ID that is a path: %v", err)
	}
}

func TestTimelineProblems(t *testing.T) {
	gone := problem.Errorf(problem.NotFound, "list them", "no such agent")
	client, _ := serveTimeline(t, TimelinePage{}, gone)
	var p *problem.Error
	if _, err := client.Timeline(t.Context(), "a1", TimelineQuery{}); !errors.As(err, &p) || p.Code != problem.NotFound || p.Fix != "list them" {
		t.Errorf("got %v", err)
	}
	client, _ = serveTimeline(t, TimelinePage{}, nil)
	if page, err := client.Timeline(t.Context(), "a1", TimelineQuery{}); err != nil || page.More || len(page.Events) != 0 {
		t.Errorf("nothing: %+v, %v", page, err)
	}
	for query, field := range map[string]string{
		"before=-1": "before", "after=x": "after", "limit=0": "limit", "before=18446744073709551615": "before", "since=yesterday": "since",
		"order=up": "order", "type=nonsense": "type", "app=web": "namespace", "colour=red": "colour", "limit=1&limit=2": "limit",
		strings.Repeat("type=app.failed&", 30): "type",
	} {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parseTimelineQuery(values); !errors.As(err, &p) || p.Field != "query."+field || p.Fix == "" || p.Status != http.StatusUnprocessableEntity {
			t.Errorf("%s: %v", query, err)
		}
	}
	if q, err := parseTimelineQuery(url.Values{"limit": {"100000"}}); err != nil || q.Limit != MaxTimelineLimit {
		t.Errorf("a large limit: %+v, %v", q, err)
	}
	for name, body := range map[string]string{"a page": "<html>", "another object": `{"items":[]}`, "no event": `{"events":[{}]}`, "endless": strings.Repeat(" ", maxTimelinePage+1)} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }))
		client := &SnapshotClient{BaseURL: server.URL}
		if got, err := client.Timeline(t.Context(), "a1", TimelineQuery{}); err == nil {
			t.Errorf("%s: took it for %+v", name, got)
		}
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
		if err == nil && (q.Limit < 1 || q.Limit > MaxTimelineLimit || q.Before > 1<<63-1) {
			t.Errorf("%s: %+v", query, q)
		}
		if e := (&problem.Error{}); err != nil && !errors.As(err, &e) {
			t.Errorf("%s: %v", query, err)
		}
	})
}

func FuzzReadTimeline(f *testing.F) {
	f.Add([]byte(`{"events":[],"more":true}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var b timelineBody
		if json.Unmarshal(body, &b) != nil {
			return
		}
		page, err := b.decode()
		if err == nil && len(page.Events) != len(b.Events) {
			t.Error("events were lost")
		}
	})
}
