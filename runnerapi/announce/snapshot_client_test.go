package announce

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func FuzzReadSnapshot(f *testing.F) {
	body, err := json.Marshal(Snapshot{Agents: []Agent{at("a1", 1, StateOnline)}})
	require.NoError(f, err)
	f.Add(body)
	f.Add([]byte(`{"agents":[{}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		agents, err := parseSnapshot(body)
		if err != nil {
			return
		}
		_, err = json.Marshal(agents)
		require.NoError(t, err)
	})
}

func FuzzReadTimeline(f *testing.F) {
	f.Add([]byte(`{"events":[],"more":true}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var b TimelineBody
		if json.Unmarshal(body, &b) != nil {
			return
		}
		page, err := b.decode()
		if err != nil {
			return
		}
		unknown := 0
		for _, raw := range b.Events {
			if _, err := Decode(raw); err != nil {
				unknown++
			}
		}
		assert.Equal(t, len(b.Events), len(page.Events)+unknown, "events were lost")
	})
}

func TestSnapshotClient_LimitsResponse(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.Copy(w, io.LimitReader(spaces{}, 5<<20)) }))
	t.Cleanup(server.Close)
	req, err := retryablehttp.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	require.NoError(t, err)
	client := SnapshotClient{BaseURL: server.URL, HTTPClient: server.Client()}
	if _, err := client.do(req, 4<<20); err == nil || !strings.Contains(err.Error(), "larger than 4 MiB") {
		t.Errorf("too large: %v", err)
	}
}

type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}
