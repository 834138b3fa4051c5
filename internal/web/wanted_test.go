package web

import (
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestGuard_Wanted: a cookie that another server on this host has set leads to no other site.
func TestGuard_Wanted(t *testing.T) {
	for page, leads := range map[string]string{
		"/console/agents/shop/app?namespace=production&app=web": "/console/agents/shop/app?namespace=production&app=web",
		"":                              "/console/",
		"https://evil.example.com/":     "/console/",
		"//evil.example.com/console/":   "/console/",
		"/console//evil.example.com":    "/console/",
		`/console/\evil.example.com`:    "/console/",
		"/elsewhere":                    "/console/",
		"/console/a\r\nSet-Cookie: b=c": "/console/",
		"/console/a b":                  "/console/",
	} {
		g, w := &Guard{Cookie: "s", Pages: &Pages{Base: "/console"}}, httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, "/console/enter", nil)
		r.AddCookie(&http.Cookie{Name: "s-page", Value: base64.RawURLEncoding.EncodeToString([]byte(page))})
		assert.Equal(t, leads, g.wanted(w, r), page)
		assert.Contains(t, w.Header().Get("Set-Cookie"), "Max-Age=0", "it is used up")
	}
	r := httptest.NewRequest(http.MethodPost, "/enter", nil)
	r.AddCookie(&http.Cookie{Name: "s-page", Value: base64.RawURLEncoding.EncodeToString([]byte("//evil.example.com"))})
	assert.Equal(t, "/", (&Guard{Cookie: "s", Pages: &Pages{}}).wanted(httptest.NewRecorder(), r), "a site at the root")
}
