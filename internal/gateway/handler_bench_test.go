package gateway_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/gateway"
)

// BenchmarkHandler passes a request on by a route without conditions and filters.
func BenchmarkHandler(b *testing.B) {
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }))
	b.Cleanup(app.Close)
	h := gateway.NewHandler(nil, zerolog.Nop())
	b.Cleanup(h.Close)
	h.Set([]gateway.Route{
		{Host: "www.example.org", Path: "/", PathType: "Prefix", Addresses: []string{app.Listener.Addr().String()}},
		{Host: "www.example.org", Path: "/api", PathType: "Prefix", Addresses: []string{app.Listener.Addr().String()}},
	})
	b.ReportAllocs()
	for b.Loop() {
		r := httptest.NewRequest(http.MethodGet, "http://www.example.org/api/x?q=1", http.NoBody)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			b.Fatal(w.Code)
		}
	}
}
