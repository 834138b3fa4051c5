package announce

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/hashicorp/go-retryablehttp"
)

func TestSnapshotClient_LimitsResponse(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.Copy(w, io.LimitReader(spaces{}, 5<<20)) }))
	t.Cleanup(server.Close)
	req, err := retryablehttp.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
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
