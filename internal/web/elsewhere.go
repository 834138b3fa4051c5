package web

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/limit"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// Paths of signing in at another site.
const (
	BeginPath  = "/sign-in"
	ReturnPath = "/sign-in/return"
)

// SignedIn is what the page signed-in shows.
type SignedIn struct {
	Name string // the person's
	Next string // the page that follows
}

// loginLife is how long a person may take at the other site.
const loginLife = 10 * time.Minute

// Elsewhere is another site at which people sign in: an identity provider.
type Elsewhere interface {
	// Name is the site's, for people.
	Name() string
	// Home is the address of this site to which the other one sends browsers back, with Base.
	Home() *url.URL
	// Begin returns the address to which a browser is sent, and what it keeps until it returns.
	Begin(ctx context.Context) (address, secret string, err error)
	// Return returns the session of a person whose browser has returned, with what it kept.
	Return(ctx context.Context, secret string, query url.Values) (*Session, error)
}

// begin sends a browser to the other site, when the person has chosen that on a page of this site.
func (g *Guard) begin(w http.ResponseWriter, r *http.Request) {
	session, _ := g.session(r)
	home := g.Elsewhere.Home()
	switch {
	case session != nil:
		http.Redirect(w, r, g.Pages.Base+"/", http.StatusSeeOther)
	case withoutPort443(r.Host) != withoutPort443(home.Host): // the other site sends no browser back to this name
		http.Redirect(w, r, home.String()+EnterPath, http.StatusSeeOther)
	case byLink(r):
		http.Redirect(w, r, g.Pages.Base+EnterPath, http.StatusSeeOther)
	default:
		g.sendAway(w, r)
	}
}

// byLink reports whether another site led to a page.
func byLink(r *http.Request) bool {
	from := r.Header.Get("Sec-Fetch-Site")
	return from == "cross-site" || from == "same-site"
}

// withoutPort443 returns a host as browsers send it.
func withoutPort443(host string) string {
	u := url.URL{Host: host}
	if u.Port() == "443" {
		return host[:len(host)-len(":443")]
	}
	return host
}

func (g *Guard) sendAway(w http.ResponseWriter, r *http.Request) {
	peer, now := limit.PeerOfText(r.RemoteAddr), g.Now()
	address, secret, err := "", "", tooMany(g.failures.Wait(peer, now))
	if err == nil {
		if address, secret, err = g.Elsewhere.Begin(r.Context()); err != nil {
			g.failures.Failed(peer, now)
		}
	}
	if err != nil {
		g.Pages.Error(w, r, err)
		return
	}
	// The browser sends it along when the other site leads back here, which Strict would not allow.
	g.setLogin(w, r, secret, int(loginLife/time.Second))
	http.Redirect(w, r, address, http.StatusSeeOther)
}

func (g *Guard) loginCookie() string { return g.Cookie + "-login" }

func (g *Guard) setLogin(w http.ResponseWriter, r *http.Request, secret string, maxAge int) {
	setCookie(w, r, g.loginCookie(), secret, maxAge, http.SameSiteLaxMode)
}

func tooMany(wait time.Duration) error {
	if wait <= 0 {
		return nil
	}
	return problem.Errorf(problem.TooManyRequests, "wait a moment, then sign in again", "too many sign-ins have failed").WithRetryAfter(wait)
}

// comeBack opens the session of a person who has signed in at the other site. It answers with a
// page that leads on, because browsers send the session's cookie with no redirect that the other
// site began. What the browser kept is used up.
func (g *Guard) comeBack(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		g.Pages.Error(w, r, problem.Errorf(problem.NotAllowed, "sign in on the page", "the path has no such method"))
		return
	}
	peer, now := limit.PeerOfText(r.RemoteAddr), g.Now()
	if err := tooMany(g.failures.Wait(peer, now)); err != nil {
		g.Pages.Error(w, r, err)
		return
	}
	secret := ""
	if kept, err := r.Cookie(g.loginCookie()); err == nil {
		secret = kept.Value
	}
	g.setLogin(w, r, "", -1)
	session, err := g.Elsewhere.Return(r.Context(), secret, r.URL.Query())
	if err != nil {
		g.failures.Failed(peer, now)
		g.Pages.Error(w, r, err)
		return
	}
	g.keep(w, r, session)
	next := g.wanted(w, r)
	w.Header().Set("Refresh", "0; url="+next)
	g.Pages.Render(w, r, http.StatusOK, "signed-in", Page{Title: "Signed in", Data: SignedIn{session.Name, next}})
}
