package web

import (
	"context"
	"net/http"
	"net/netip"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/limit"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// Paths of the guard's own.
const (
	EnterPath = "/enter"
	LeavePath = "/leave"
)

const (
	// maxForm bounds the body of a request, in bytes: the largest spec of an App, percent-encoded.
	maxForm = 4 << 20
	// maxSignIn bounds the body of a request without a session.
	maxSignIn = 64 << 10
	// failedEntries is how many wrong tokens an address may send at once; after that, one a second.
	failedEntries = 10
	// failedVisits is the same of visitors' sign-ins. Many people may have one address.
	failedVisits = 100
	// csrfField is the form field with the session's token.
	csrfField = "csrf"
)

// policy is the Content-Security-Policy of all pages: what the program brings, and no script or
// style within a page.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// Guard lets a request through to Next only if this site's own page sent it, in a session.
type Guard struct {
	// Hosts reports whether a Host header is one of this server's. A page of another site can make
	// its own name resolve to this server's address (DNS rebinding); the browser still sends that
	// name.
	Hosts    func(host string) bool
	Sessions Keeper
	// Cookie is the name of the session's cookie. Servers on different ports of a host need
	// different names: a browser sends cookies to all ports.
	Cookie string
	// Form has a token come in a form, which no log has, and not in the address. Pages needs a page
	// sign-in then.
	Form bool
	// Elsewhere is another site at which sessions can be opened as well; nil for none. Pages needs
	// a page signed-in then, and its Elsewhere.
	Elsewhere Elsewhere
	// Visitors sign in at Elsewhere for other sites; nil for none. Pages needs a page visitor then.
	Visitors Visitors
	Pages    *Pages
	Next     http.Handler
	Now      func() time.Time

	failures *limit.Failures[netip.Prefix]
	origins  *http.CrossOriginProtection
	visiting visiting
}

// NewGuard returns a guard with what it counts.
func NewGuard(g Guard) *Guard {
	g.failures, g.origins = limit.NewFailures[netip.Prefix](failedEntries, time.Second), http.NewCrossOriginProtection()
	g.visiting = visiting{&g, limit.NewFailures[netip.Prefix](failedVisits, time.Second)}
	return &g
}

// ServeHTTP implements http.Handler.
func (g *Guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	setHeaders(w.Header())
	switch err := g.foreign(r); {
	case err != nil:
		g.Pages.Error(w, r, err)
	case g.Pages.assets.has(r):
		g.Pages.assets.ServeHTTP(w, r)
	case r.URL.Path == g.Pages.Base+EnterPath:
		g.enter(w, r)
	case g.visiting.serves(r):
		g.visiting.ServeHTTP(w, r)
	case g.Elsewhere != nil && r.URL.Path == g.Pages.Base+BeginPath:
		g.begin(w, r)
	case g.Elsewhere != nil && r.URL.Path == g.Pages.Base+ReturnPath:
		g.comeBack(w, r)
	default:
		g.withSession(w, r)
	}
}

func setHeaders(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin") // with no-referrer, browsers send no Origin with forms
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), usb=()")
	h.Set("Cache-Control", "no-store")
}

// foreign refuses what another site may have caused. A site on another port of this host counts as
// another one, although browsers send it the same cookies. Following a link is allowed: that only
// shows a page, and only to the person.
func (g *Guard) foreign(r *http.Request) error {
	if !g.Hosts(r.Host) {
		return problem.New(http.StatusMisdirectedRequest, problem.BadRequest, "open the address that the program printed", "this server does not serve the host %.100q", r.Host)
	}
	if err := g.origins.Check(r); err != nil {
		return problem.Errorf(problem.Forbidden, "use the page's own buttons", "the request comes from another site")
	}
	follows := r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
	switch r.Header.Get("Sec-Fetch-Site") {
	case "cross-site", "same-site":
		if !follows {
			return problem.Errorf(problem.Forbidden, "open the page itself", "the request comes from another site")
		}
	}
	return nil
}

// enter exchanges a token for a session. The redirect takes the token out of the address.
func (g *Guard) enter(w http.ResponseWriter, r *http.Request) {
	if session, _ := g.session(r); session != nil { // a link that is opened twice in the same browser
		http.Redirect(w, r, g.Pages.Base+"/", http.StatusSeeOther)
		return
	}
	if g.Form && r.Method != http.MethodPost {
		g.Pages.Render(w, r, http.StatusOK, "sign-in", Page{Title: "Sign in"})
		return
	}
	session, err := g.exchange(w, r)
	if err != nil {
		g.Pages.Error(w, r, err)
		return
	}
	g.keep(w, r, session)
	http.Redirect(w, r, g.wanted(w, r), http.StatusSeeOther)
}

// keep has the browser keep a session.
func (g *Guard) keep(w http.ResponseWriter, r *http.Request, session *Session) {
	setCookie(w, r, g.Cookie, session.id, 0, http.SameSiteStrictMode)
}

// setCookie has the browser keep a cookie that scripts cannot read, for maxAge seconds or, with 0,
// until it is closed. A maxAge below 0 removes it.
func setCookie(w http.ResponseWriter, r *http.Request, name, value string, maxAge int, site http.SameSite) {
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // on loopback there is no TLS for Secure
		Name: name, Value: value, Path: "/", MaxAge: maxAge, HttpOnly: true, Secure: r.TLS != nil, SameSite: site,
	})
}

// exchange returns the session that a request's token opens.
func (g *Guard) exchange(w http.ResponseWriter, r *http.Request) (*Session, error) {
	peer, now := limit.PeerOfText(r.RemoteAddr), g.Now()
	if wait := g.failures.Wait(peer, now); wait > 0 {
		return nil, problem.Errorf(problem.TooManyRequests, "wait a moment, then open the link again", "too many wrong links were opened").WithRetryAfter(wait)
	}
	token := r.URL.Query().Get("token")
	if g.Form {
		r.Body = http.MaxBytesReader(w, r.Body, maxSignIn)
		token = r.PostFormValue("code")
	}
	session, err := g.Sessions.Enter(r.Context(), token)
	if session == nil && err == nil {
		g.failures.Failed(peer, now)
		err = problem.Errorf(problem.Unauthorized, g.Pages.SignIn, "this link is wrong, or it was used before")
	}
	return session, err
}

// session returns the session of a request; nil if it has none.
func (g *Guard) session(r *http.Request) (*Session, error) {
	cookie, err := r.Cookie(g.Cookie)
	if err != nil {
		return nil, nil //nolint:nilerr,nilnil // it has none
	}
	return g.Sessions.Find(r.Context(), cookie.Value)
}

// signedOut has a person sign in, who arrives at the page of the request then. A form that was sent
// comes back: the page's script has kept what was typed.
func (g *Guard) signedOut(w http.ResponseWriter, r *http.Request) {
	why := problem.Errorf(problem.Unauthorized, g.Pages.SignIn, "you are not signed in")
	switch {
	case r.Header.Get("Sec-Fetch-Dest") == "empty": // a stream
		g.Pages.Error(w, r, why)
	case r.Method != http.MethodGet:
		again := g.shown(r)
		g.remember(w, r, again)
		if g.Form {
			g.Pages.Render(w, r, http.StatusUnauthorized, "sign-in", Page{Title: "Sign in", Again: again})
			return
		}
		g.Pages.refuse(w, r, why, again)
	case g.Form:
		g.remember(w, r, r.URL.RequestURI())
		http.Redirect(w, r, g.Pages.Base+EnterPath, http.StatusSeeOther)
	default:
		g.remember(w, r, r.URL.RequestURI())
		g.Pages.Error(w, r, why)
	}
}

// withSession passes a request on, or ends its session.
func (g *Guard) withSession(w http.ResponseWriter, r *http.Request) {
	session, err := g.session(r)
	switch {
	case err != nil:
		g.Pages.Error(w, r, err)
		return
	case session == nil:
		g.signedOut(w, r)
		return
	}
	signedOut, signedIn := r, *session
	signedIn.find = g.Sessions.Find
	r = r.WithContext(context.WithValue(r.Context(), sessionKey{}, &signedIn))
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		if !session.genuine(r.PostFormValue(csrfField)) {
			g.Pages.refuse(w, r, problem.Errorf(problem.Forbidden, "open the form again and send it", "the form is not of this session"), g.shown(r))
			return
		}
	}
	if r.URL.Path == g.Pages.Base+LeavePath && r.Method == http.MethodPost {
		if err := g.Sessions.End(signedOut.Context(), session.id); err != nil {
			g.Pages.Error(w, r, err)
			return
		}
		g.Pages.Error(w, signedOut, problem.Errorf(problem.Unauthorized, g.Pages.SignIn, "you have signed out"))
		return
	}
	g.Next.ServeHTTP(w, r)
}
