package web

import (
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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

// TestGuard_FormWithoutSession: a form that is sent after its session has ended leads back to its
// page.
func TestGuard_FormWithoutSession(t *testing.T) {
	const page = "/apps/production/web/scale?a=b"
	for from, leads := range map[string]string{
		"http://" + host + page: page, "http://evil.example.com/scale": "/", "http://" + host + "//evil.example.com": "/", "": "/",
	} {
		s := newSite(t)
		_, earlier := s.signIn(t)
		sent := s.do(http.MethodPost, "/apps/production/web/scale", url.Values{"csrf": {earlier}}, header("Cookie", "test=ended"), header("Referer", from))
		require.Equal(t, http.StatusUnauthorized, sent.Code)
		assert.Contains(t, sent.Body.String(), `<body class="refused-form">`, "the script keeps the form")
		again := s.do(http.MethodGet, EnterPath+"?token="+s.invite(), nil, func(r *http.Request) {
			for _, c := range sent.Result().Cookies() {
				r.AddCookie(c)
			}
		})
		assert.Equal(t, leads, again.Header().Get("Location"), from)

		with, _ := s.signIn(t)
		sent = s.do(http.MethodPost, "/apps/production/web/scale", url.Values{"csrf": {earlier}}, with, header("Referer", from))
		require.Equal(t, http.StatusForbidden, sent.Code, "another tab has signed in")
		assert.Contains(t, sent.Body.String(), `<body class="refused-form">`)
		assert.Contains(t, sent.Body.String(), `href="`+leads+`">open the form again`)
	}
}

// TestGuard_PageWithoutSession: the link that signs in leads to the page that was opened.
func TestGuard_PageWithoutSession(t *testing.T) {
	s := newSite(t)
	page := s.do(http.MethodGet, "/nodes?page=2", nil)
	require.Equal(t, http.StatusUnauthorized, page.Code)
	assert.NotContains(t, page.Body.String(), "refused-form")
	require.Len(t, page.Result().Cookies(), 1)
	stream := s.do(http.MethodGet, "/live/nodes", nil, header("Sec-Fetch-Dest", "empty"))
	assert.Empty(t, stream.Result().Cookies(), "a stream is not where a person arrives")
	in := s.do(http.MethodGet, EnterPath+"?token="+s.invite(), nil, func(r *http.Request) { r.AddCookie(page.Result().Cookies()[0]) })
	assert.Equal(t, "/nodes?page=2", in.Header().Get("Location"))
}
