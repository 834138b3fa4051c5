package web

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	// wantedLife is how long a browser keeps the page that a person asked for before signing in.
	wantedLife = 10 * time.Minute
	// maxWanted bounds the length of that page's address.
	maxWanted = 1024
)

func (g *Guard) wantedCookie() string { return g.Cookie + "-page" }

// shown returns the page that has sent a form; the first one if the browser does not name it.
func (g *Guard) shown(r *http.Request) string {
	from, err := url.Parse(r.Referer())
	if err != nil || from.Host != r.Host || !g.shows(from.RequestURI()) {
		return g.Pages.Base + "/"
	}
	return from.RequestURI()
}

// remember has the browser keep a page of this site until the person has signed in.
func (g *Guard) remember(w http.ResponseWriter, r *http.Request, page string) {
	if page == g.Pages.Base+"/" || !g.shows(page) {
		g.wanted(w, r) // forget an earlier one
		return
	}
	g.setWanted(w, r, base64.RawURLEncoding.EncodeToString([]byte(page)), int(wantedLife/time.Second))
}

// wanted returns the page at which a person arrives after signing in: the one that was asked for,
// or the first. What the browser kept is used up.
func (g *Guard) wanted(w http.ResponseWriter, r *http.Request) string {
	first := g.Pages.Base + "/"
	kept, err := r.Cookie(g.wantedCookie())
	if err != nil {
		return first
	}
	g.setWanted(w, r, "", -1)
	page, err := base64.RawURLEncoding.DecodeString(kept.Value)
	if err != nil || !g.shows(string(page)) { // a server on another port of this host may have set it
		return first
	}
	return string(page)
}

// shows reports whether an address is a page of this site. A browser takes // and /\ for another
// host.
func (g *Guard) shows(page string) bool {
	below, is := strings.CutPrefix(page, g.Pages.Base+"/")
	printable := !strings.ContainsFunc(page, func(c rune) bool { return c <= ' ' || c > '~' })
	return is && printable && len(page) <= maxWanted && !strings.HasPrefix(below, "/") && !strings.HasPrefix(below, `\`)
}

func (g *Guard) setWanted(w http.ResponseWriter, r *http.Request, value string, maxAge int) {
	setCookie(w, r, g.wantedCookie(), value, maxAge, http.SameSiteLaxMode)
}
