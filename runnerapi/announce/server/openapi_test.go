package server

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

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
