package web

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const host = "127.0.0.1:4000"

// site is a guarded site whose clock a test sets.
type site struct {
	*Guard
	now time.Time
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{now: time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)}
	now := func() time.Time { return s.now }
	pages, err := NewPages(Pages{Product: "Test", Nav: []Link{{Path: "/", Text: "First"}}}, fstest.MapFS{
		"templates/page.html": {Data: []byte(`{{define "content"}}<h1>{{.Title}}</h1><form>{{template "csrf" .}}</form>{{end}}`)},
	})
	require.NoError(t, err)
	s.Guard = NewGuard(Guard{
		Hosts: func(h string) bool { return h == host }, Sessions: NewSessions(now), Cookie: "test", Pages: pages, Now: now,
		Next: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			pages.Render(w, r, http.StatusOK, "page", Page{Title: r.Method})
		}),
	})
	return s
}

func (s *site) invite() string { return s.Sessions.(*Sessions).Invite() }

// do sends a request, changed by what the test gives.
func (s *site) do(method, path string, form url.Values, change ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://"+host+path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

// signIn returns what makes a request one of a session, and the session's token for forms.
func (s *site) signIn(t *testing.T) (func(*http.Request), string) {
	t.Helper()
	w := s.do(http.MethodGet, EnterPath+"?token="+s.invite(), nil)
	require.Equal(t, http.StatusSeeOther, w.Code)
	assert.Equal(t, "/", w.Header().Get("Location"), "the address no longer contains the token")
	cookies := w.Result().Cookies()
	require.Len(t, cookies, 1)
	c := cookies[0]
	assert.True(t, c.HttpOnly)
	assert.Equal(t, http.SameSiteStrictMode, c.SameSite)
	assert.Zero(t, c.MaxAge)
	with := func(r *http.Request) { r.AddCookie(c) }
	page := s.do(http.MethodGet, "/", nil, with)
	require.Equal(t, http.StatusOK, page.Code)
	_, rest, _ := strings.Cut(page.Body.String(), `name="csrf" value="`)
	token, _, _ := strings.Cut(rest, `"`)
	require.NotEmpty(t, token)
	return with, token
}

func TestGuard_LinkSignsInOnce(t *testing.T) {
	s := newSite(t)
	link := EnterPath + "?token=" + s.invite()
	assert.Equal(t, http.StatusUnauthorized, s.do(http.MethodGet, "/", nil).Code)
	require.Equal(t, http.StatusSeeOther, s.do(http.MethodGet, link, nil).Code)
	again := s.do(http.MethodGet, link, nil)
	assert.Equal(t, http.StatusUnauthorized, again.Code)
	assert.Empty(t, again.Result().Cookies())
	assert.Contains(t, again.Body.String(), "used before")

	late := EnterPath + "?token=" + s.invite()
	s.now = s.now.Add(inviteLife + time.Second)
	assert.Equal(t, http.StatusUnauthorized, s.do(http.MethodGet, late, nil).Code)

	with, _ := s.signIn(t)
	assert.Equal(t, http.StatusSeeOther, s.do(http.MethodGet, link, nil, with).Code, "a signed-in browser may open the link again")
}

func TestGuard_LimitsWrongTokens(t *testing.T) {
	s := newSite(t)
	link := EnterPath + "?token=" + s.invite()
	for range failedEntries {
		require.Equal(t, http.StatusUnauthorized, s.do(http.MethodGet, EnterPath+"?token=wrong", nil).Code)
	}
	w := s.do(http.MethodGet, link, nil)
	assert.Equal(t, http.StatusTooManyRequests, w.Code)
	assert.NotEmpty(t, w.Header().Get("Retry-After"))
	s.now = s.now.Add(2 * time.Second)
	assert.Equal(t, http.StatusSeeOther, s.do(http.MethodGet, link, nil).Code, "the right link still works")
}

// TestGuard_RefusesOtherHosts is about DNS rebinding: the address is this server's, and the name is
// the other site's.
func TestGuard_RefusesOtherHosts(t *testing.T) {
	s := newSite(t)
	with, _ := s.signIn(t)
	for _, name := range []string{"evil.example.com", "evil.example.com:4000", "127.0.0.1:4001", "127.0.0.1", "127.0.0.1.evil.example.com:4000", ""} {
		for _, path := range []string{"/", EnterPath + "?token=" + s.invite(), s.Pages.assets.URL("style.css")} {
			w := s.do(http.MethodGet, path, nil, with, func(r *http.Request) { r.Host = name })
			assert.Equal(t, http.StatusMisdirectedRequest, w.Code, name+path)
			assert.Empty(t, w.Result().Cookies())
		}
	}
}

func TestGuard_RefusesCrossSiteForms(t *testing.T) {
	s := newSite(t)
	with, token := s.signIn(t)
	right := url.Values{"csrf": {token}}
	assert.Equal(t, http.StatusOK, s.do(http.MethodPost, "/", right, with).Code)
	assert.Equal(t, http.StatusOK, s.do(http.MethodPost, "/", right, with, header("Origin", "http://"+host)).Code)
	_, others := s.signIn(t)
	for name, c := range map[string]struct {
		form   url.Values
		change func(*http.Request)
		want   int
	}{
		"no token":            {url.Values{}, with, 403},
		"a wrong token":       {url.Values{"csrf": {"x"}}, with, 403},
		"another's token":     {url.Values{"csrf": {others}}, with, 403},
		"no session":          {right, func(*http.Request) {}, 401},
		"a made-up cookie":    {right, header("Cookie", "test=x"), 401},
		"another origin":      {right, func(r *http.Request) { with(r); r.Header.Set("Origin", "http://evil.example.com") }, 403},
		"another port":        {right, func(r *http.Request) { with(r); r.Header.Set("Origin", "http://127.0.0.1:5000") }, 403},
		"no origin":           {right, func(r *http.Request) { with(r); r.Header.Set("Origin", "null") }, 403},
		"fetched by another":  {right, func(r *http.Request) { with(r); r.Header.Set("Sec-Fetch-Site", "cross-site") }, 403},
		"fetched by the host": {right, func(r *http.Request) { with(r); r.Header.Set("Sec-Fetch-Site", "same-site") }, 403},
	} {
		assert.Equal(t, c.want, s.do(http.MethodPost, "/", c.form, c.change).Code, name)
	}
	large := url.Values{"csrf": {token}, "a": {strings.Repeat("a", maxForm)}}
	assert.Equal(t, http.StatusForbidden, s.do(http.MethodPost, "/", large, with).Code)
}

// TestGuard_RefusesCrossSiteReads: browsers send the cookie to all ports of a host.
func TestGuard_RefusesCrossSiteReads(t *testing.T) {
	s := newSite(t)
	with, _ := s.signIn(t)
	for fetch, want := range map[[3]string]int{
		{"same-origin", "cors", "empty"}: 200, {"none", "navigate", "document"}: 200, {"cross-site", "navigate", "document"}: 200,
		{"cross-site", "cors", "empty"}: 403, {"same-site", "cors", "empty"}: 403, {"same-site", "no-cors", "script"}: 403,
		{"cross-site", "navigate", "iframe"}: 403,
	} {
		w := s.do(http.MethodGet, "/", nil, with, header("Sec-Fetch-Site", fetch[0]), header("Sec-Fetch-Mode", fetch[1]), header("Sec-Fetch-Dest", fetch[2]))
		assert.Equal(t, want, w.Code, fetch)
	}
}

func TestGuard_SessionEnds(t *testing.T) {
	s := newSite(t)
	with, token := s.signIn(t)
	assert.Equal(t, http.StatusOK, s.do(http.MethodGet, LeavePath, nil, with).Code, "a link ends no session")
	assert.Equal(t, http.StatusUnauthorized, s.do(http.MethodPost, LeavePath, url.Values{"csrf": {token}}, with).Code)
	assert.Equal(t, http.StatusUnauthorized, s.do(http.MethodGet, "/", nil, with).Code)
	assert.Equal(t, http.StatusUnauthorized, s.do(http.MethodPost, "/", url.Values{"csrf": {token}}, with).Code)

	with, _ = s.signIn(t)
	s.now = s.now.Add(sessionLife + time.Second)
	assert.Equal(t, http.StatusUnauthorized, s.do(http.MethodGet, "/", nil, with).Code)

	with, _ = s.signIn(t)
	s.Sessions = NewSessions(s.Now) // the process started again
	assert.Equal(t, http.StatusUnauthorized, s.do(http.MethodGet, "/", nil, with).Code)
}

func TestGuard_BoundsSessions(t *testing.T) {
	s := newSite(t)
	first, _ := s.signIn(t)
	for range maxSessions {
		s.now = s.now.Add(time.Millisecond)
		opened, err := s.Sessions.Enter(t.Context(), s.invite())
		require.NoError(t, err)
		require.NotNil(t, opened)
	}
	assert.Len(t, s.Sessions.(*Sessions).open, maxSessions)
	assert.Equal(t, http.StatusUnauthorized, s.do(http.MethodGet, "/", nil, first).Code)
}

func TestGuard_SecurityHeaders(t *testing.T) {
	s := newSite(t)
	with, _ := s.signIn(t)
	for _, path := range []string{"/", EnterPath, s.Pages.assets.URL("htmx.min.js"), "/assets/nowhere"} {
		for _, change := range []func(*http.Request){with, func(*http.Request) {}, func(r *http.Request) { r.Host = "evil.example.com" }} {
			h := s.do(http.MethodGet, path, nil, change).Header()
			csp := h.Get("Content-Security-Policy")
			assert.Contains(t, csp, "default-src 'none'", path)
			assert.Contains(t, csp, "frame-ancestors 'none'")
			assert.NotContains(t, csp, "unsafe")
			assert.NotContains(t, csp, "*")
			assert.Equal(t, "nosniff", h.Get("X-Content-Type-Options"))
			assert.Empty(t, h.Get("Access-Control-Allow-Origin"))
			if !strings.HasPrefix(path, assetPrefix) {
				assert.Equal(t, "no-store", h.Get("Cache-Control"))
			}
		}
	}
	asset := s.do(http.MethodGet, s.Pages.assets.URL("style.css"), nil)
	assert.Equal(t, "text/css; charset=utf-8", asset.Header().Get("Content-Type"))
	assert.Contains(t, asset.Header().Get("Cache-Control"), "immutable")
}

// TestGuard_TokenNotFromQuery on a site below a path.
func TestGuard_TokenNotFromQuery(t *testing.T) {
	s := newSite(t)
	pages, err := NewPages(Pages{Product: "Test", Base: "/below"}, fstest.MapFS{
		"templates/sign-in.html": {Data: []byte(`{{define "content"}}<form>{{.Title}}</form>{{end}}`)},
	})
	require.NoError(t, err)
	s.Form, s.Pages = true, pages
	signedOut := s.do(http.MethodGet, "/below/page", nil)
	assert.Equal(t, http.StatusSeeOther, signedOut.Code)
	assert.Equal(t, "/below/enter", signedOut.Header().Get("Location"))
	assert.Equal(t, http.StatusUnauthorized, s.do(http.MethodGet, "/below/live", nil, header("Sec-Fetch-Dest", "empty")).Code)
	assert.Equal(t, http.StatusUnauthorized, s.do(http.MethodPost, "/below/page", nil).Code)
	token := s.invite()
	page := s.do(http.MethodGet, "/below/enter?token="+token, nil)
	assert.Equal(t, http.StatusOK, page.Code)
	assert.Empty(t, page.Result().Cookies())
	assert.Contains(t, page.Body.String(), `href="/below/assets/`)
	assert.Equal(t, http.StatusForbidden, s.do(http.MethodPost, "/below/enter", url.Values{"code": {token}}, header("Origin", "https://evil.example.com")).Code)
	in := s.do(http.MethodPost, "/below/enter", url.Values{"code": {token}})
	assert.Equal(t, http.StatusSeeOther, in.Code)
	assert.Equal(t, "/below/", in.Header().Get("Location"))
	assert.Len(t, in.Result().Cookies(), 1)
}
