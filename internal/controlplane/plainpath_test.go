package controlplane

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestPlainPaths_Redirect(t *testing.T) {
	handler := plainPaths(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	for given, want := range map[string]string{
		"/v1/agents":                    "",
		"/v1/agents/":                   "",
		"/":                             "",
		"/v1/agents/%2e%2e/events":      "",
		"/v1//agents?a=%2Fb":            "/v1/agents?a=%2Fb",
		"/v1/./agents":                  "/v1/agents",
		"/v1/agents/../x/":              "/v1/x/",
		"//evil.example.com/..//":       "/",
		"//evil.example.com/v1":         "/evil.example.com/v1",
		"/v1/agents//events?limit=1;=2": "/v1/agents/events?limit=1;=2",
	} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "https://plane"+given, nil))
		assert.Equal(t, want, w.Header().Get("Location"), given)
		assert.Empty(t, w.Body.String())
		if want != "" {
			assert.Equal(t, http.StatusTemporaryRedirect, w.Code)
		}
	}
}
