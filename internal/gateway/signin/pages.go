package signin

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
	"github.com/pipeops/pipeops-vm-agent/internal/idtoken"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// Paths of a host with sign-in that the agent answers itself. It answers all others below
// ReservedPath too, with 404: none leads to the App.
const (
	ReservedPath = "/.pipeops/"
	CallbackPath = gatewaywire.CallbackPath
	SignOutPath  = ReservedPath + "sign-out"
	KeysPath     = ReservedPath + "keys"
)

const (
	// signInFor is how long a visitor may take to sign in.
	signInFor = 30 * time.Minute
	// maxReturn bounds the target to which a visitor returns, in bytes, so that a state has at most
	// MaxState. From a longer one, the visitor returns to the first page.
	maxReturn = 1024
	// minSecret and maxSecret bound the secret of a browser, in bytes; rand.Text returns 26.
	minSecret, maxSecret = 26, 64
)

// Reserved reports whether the agent answers a path itself.
func Reserved(path string) bool {
	return strings.HasPrefix(path, ReservedPath) || path+"/" == ReservedPath
}

// Navigates reports whether a request is a browser's for a page, so that a redirect leads a person
// somewhere.
func Navigates(r *http.Request) bool {
	if r.Method != http.MethodGet || r.Header.Get("Upgrade") != "" {
		return false
	}
	if mode := r.Header.Get("Sec-Fetch-Mode"); mode != "" {
		return mode == "navigate"
	}
	return strings.Contains(r.Header.Get("Accept"), "text/html")
}

// pending is a sign-in that has begun, sealed into the state.
type pending struct {
	// At is the authority at which it began, and To the target to which the visitor returns.
	At      string `json:"a"`
	To      string `json:"t"`
	Expires int64  `json:"x"`
}

func (d *Demand) states(host string) sealer { return d.Key.sealer("state", host, d.App) }

// Begin redirects a browser to the provider. in is the request as net/http gave it.
func (g *Gate) Begin(ctx context.Context, w http.ResponseWriter, in *http.Request, host string, now time.Time) error {
	secret := cookieOf(in.Header, browserCookie)
	if len(secret) < minSecret || len(secret) > maxSecret {
		secret = rand.Text()
	}
	p := pending{At: authority(in.Host, host), To: gatewaywire.Target(in), Expires: now.Add(signInFor).Unix()}
	if len(p.To) > maxReturn || !strings.HasPrefix(p.To, "/") {
		p.To = "/"
	}
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	state := g.states(host).seal(text, secret)
	if len(state) > MaxState { // what JSON escapes is longer
		text, err = json.Marshal(pending{p.At, "/", p.Expires})
		if err != nil {
			return err
		}
		state = g.states(host).seal(text, secret)
	}
	l := loginOf(secret, state)
	to, err := g.Provider.AuthorizeURL(ctx, p.redirect(), state, l.Nonce, l.Challenge())
	if err != nil {
		return err
	}
	setCookie(w, browserCookie, secret, signInFor)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusFound)
	return nil
}

// loginOf returns a sign-in of a browser. A browser may have several, in several tabs.
func loginOf(secret, state string) idtoken.Login { return idtoken.LoginOf(secret + " " + state) }

// authority returns the host with the port at which a request came, if that is not the usual one.
func authority(sent, host string) string {
	if _, port, err := net.SplitHostPort(sent); err == nil && port != "443" && port != "" {
		return net.JoinHostPort(host, port)
	}
	return host
}

func (p pending) redirect() string { return "https://" + p.At + CallbackPath }

// Return is a visitor's return from the provider.
type Return struct {
	pending
	gate  *Gate
	host  string
	login idtoken.Login
	query url.Values
}

// Returned returns the return of a visitor who went to the provider of this gate; false for every
// other request.
func (g *Gate) Returned(r *http.Request, host string, now time.Time) (back Return, ok bool) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	secret, state := cookieOf(r.Header, browserCookie), query.Get("state")
	if err != nil || r.Method != http.MethodGet || g.Provider == nil || secret == "" || len(state) > MaxState || len(query["state"]) != 1 {
		return Return{}, false
	}
	text, ok := g.states(host).open(state, secret)
	back = Return{gate: g, host: host, login: loginOf(secret, state), query: query}
	return back, ok && json.Unmarshal(text, &back.pending) == nil && now.Unix() < back.Expires
}

// fixAgain is what a visitor does whose sign-in failed.
const fixAgain = "open the application's address and sign in again"

// Finish signs the visitor in and redirects the browser to where it was. It returns a problem of
// the code Forbidden for a person who is not let in.
func (b Return) Finish(ctx context.Context, w http.ResponseWriter, now time.Time) error {
	g := b.gate
	if named, ok := g.Provider.(interface{ Issuer() string }); ok {
		if iss := b.query.Get("iss"); iss != "" && iss != named.Issuer() { // RFC 9207
			return problem.Errorf(problem.Unauthorized, fixAgain, "another identity provider sent this answer: %s", idtoken.Shown(iss))
		}
	}
	if code := b.query.Get("error"); code != "" {
		return problem.Errorf(problem.Unauthorized, fixAgain, "the identity provider refused: %s", idtoken.Shown(strings.TrimSpace(code+" "+b.query.Get("error_description"))))
	}
	code := b.query.Get("code")
	if code == "" || len(b.query["code"]) != 1 {
		return problem.Errorf(problem.Unauthorized, fixAgain, "the identity provider sent no code")
	}
	person, err := g.Provider.Exchange(ctx, b.redirect(), code, b.login.Verifier, b.login.Nonce)
	if err != nil {
		return err
	}
	s, err := g.sessionOf(person, now)
	if err != nil {
		return err
	}
	if !g.current(s, now) {
		return problem.Errorf(problem.Forbidden, "ask the application's owner to add you to ingress.visitors.signIn, or sign in with another account", "the route lets in neither this e-mail address nor one of these groups")
	}
	value, err := g.sealSession(b.host, s)
	if err != nil {
		return err
	}
	setCookie(w, g.sessionCookie(), value, sessionFor)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Location", "https://"+b.At+b.To)
	w.WriteHeader(http.StatusSeeOther)
	return nil
}

// SignOut removes the sessions of several gates from a browser.
func SignOut(w http.ResponseWriter, host string, gates []*Gate) {
	for _, g := range gates {
		setCookie(w, g.sessionCookie(), "", 0)
	}
	setCookie(w, browserCookie, "", 0)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("You are signed out of " + host + ". The identity provider may still know you.\n"))
}

// Keys returns the JSON Web Key Set that verifies statements about visitors of a host.
func (g *Gate) Keys(host string) ([]byte, error) {
	s, err := g.signers.of(g.Key, host)
	return s.public, err
}
