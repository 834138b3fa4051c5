package web

import (
	"context"
	"crypto/rand"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/limit"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// Paths of signing visitors of other sites in.
const (
	VisitorPath      = "/visitor"
	VisitorBeginPath = "/visitor/sign-in"
)

// Visitors are people who sign in at Elsewhere for another site, which has sent them here. They get
// no session at this one.
type Visitors interface {
	// Ask returns which site has sent a browser here with a query, and with which query the sign-in
	// begins, in the browser that keeps this secret alone.
	Ask(secret string, query url.Values) (site string, begin url.Values, err error)
	// Begin returns the address of Elsewhere to which a browser is sent that has confirmed.
	Begin(ctx context.Context, secret string, query url.Values) (address string, err error)
	// Returns reports whether a browser that returns from Elsewhere with a query is a visitor's.
	Returns(query url.Values) bool
	// Return returns the address of the other site, to which the browser is sent now.
	Return(ctx context.Context, secret string, query url.Values) (address string, err error)
}

// VisitorPage is what the page visitor shows.
type VisitorPage struct {
	Site  string // that wants to know who the person is
	Begin string // the path of the button
}

// visiting serves the paths of visitors. What it counts is apart from sign-ins to this site, so
// that visitors do not lock out others at their address.
type visiting struct {
	*Guard
	failures *limit.Failures[netip.Prefix]
}

// serves reports whether a request is a visitor's.
func (v *visiting) serves(r *http.Request) bool {
	if v.Visitors == nil || v.Elsewhere == nil {
		return false
	}
	switch r.URL.Path {
	case v.Pages.Base + VisitorPath, v.Pages.Base + VisitorBeginPath:
		return true
	case v.Pages.Base + ReturnPath:
		return v.Visitors.Returns(r.URL.Query())
	}
	return false
}

// ServeHTTP implements http.Handler.
func (v *visiting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	peer, now := limit.PeerOfText(r.RemoteAddr), v.Now()
	err := tooMany(v.failures.Wait(peer, now))
	switch {
	case r.Method != http.MethodGet:
		err = problem.Errorf(problem.NotAllowed, "sign in on the page", "the path has no such method")
	case err == nil:
		if err = v.serve(w, r); err != nil {
			v.failures.Failed(peer, now)
		}
	}
	if err != nil {
		v.Pages.Error(w, r, err)
	}
}

func (v *visiting) serve(w http.ResponseWriter, r *http.Request) error {
	switch r.URL.Path {
	case v.Pages.Base + VisitorPath:
		return v.ask(w, r)
	case v.Pages.Base + VisitorBeginPath:
		return v.away(w, r, v.Visitors.Begin)
	}
	return v.away(w, r, v.Visitors.Return)
}

// ask shows who wants to know who the person is. The browser keeps a secret from now on, one for
// all sign-ins that it begins, so that several tabs can.
func (v *visiting) ask(w http.ResponseWriter, r *http.Request) error {
	home := v.Elsewhere.Home()
	if withoutPort443(r.Host) != withoutPort443(home.Host) { // the other site sends no browser back to this name
		http.Redirect(w, r, home.String()+VisitorPath+"?"+r.URL.RawQuery, http.StatusSeeOther) //nolint:gosec // to the operator's own address
		return nil
	}
	secret := v.secret(r)
	if secret == "" {
		secret = rand.Text()
	}
	site, begin, err := v.Visitors.Ask(secret, r.URL.Query())
	if err != nil {
		return err
	}
	setCookie(w, r, v.cookie(), secret, int(loginLife/time.Second), http.SameSiteLaxMode)
	v.Pages.Render(w, r, http.StatusOK, "visitor", Page{Title: "Sign in", Data: VisitorPage{site, v.Pages.Base + VisitorBeginPath + "?" + begin.Encode()}})
	return nil
}

// away sends the browser to another site.
func (v *visiting) away(w http.ResponseWriter, r *http.Request, to func(context.Context, string, url.Values) (string, error)) error {
	address, err := to(r.Context(), v.secret(r), r.URL.Query())
	if err == nil {
		http.Redirect(w, r, address, http.StatusSeeOther)
	}
	return err
}

func (v *visiting) cookie() string { return v.Cookie + "-visitor" }

// secret returns what the browser keeps; empty for nothing.
func (v *visiting) secret(r *http.Request) string {
	kept, err := r.Cookie(v.cookie())
	if err != nil {
		return ""
	}
	return kept.Value
}
