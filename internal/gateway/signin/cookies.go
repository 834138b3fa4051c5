package signin

import (
	"net/http"
	"strings"
	"time"
)

const (
	// prefix begins the names of all cookies of sign-in. Browsers take a cookie with __Host- from
	// the host itself alone, over HTTPS.
	prefix = "__Host-pipeops-"
	// browserCookie has the secret of a browser that signs in.
	browserCookie = prefix + "browser"
)

// sessionCookie is the name of the cookie with the session. Apps at the same host have their own.
func (d *Demand) sessionCookie() string { return prefix + "session-" + digestOf(d.App) }

// cookieOf returns the value of a cookie; empty if there is none, or more than one.
func cookieOf(h http.Header, name string) (value string) {
	lines := h["Cookie"]
	found := 0
	for _, line := range lines {
		for pair := range strings.SplitSeq(line, ";") {
			if n, v, ok := strings.Cut(strings.TrimSpace(pair), "="); ok && n == name {
				value = v
				found++
			}
		}
	}
	if found != 1 {
		return ""
	}
	return value
}

// RemoveCookies removes the cookies of sign-in from a request's header, and leaves others as they
// are.
func RemoveCookies(h http.Header) {
	lines := h["Cookie"]
	for i := 0; i < len(lines); i++ {
		if !strings.Contains(lines[i], prefix) {
			continue
		}
		var kept []string
		for pair := range strings.SplitSeq(lines[i], ";") {
			if pair = strings.TrimSpace(pair); pair != "" && !strings.HasPrefix(pair, prefix) {
				kept = append(kept, pair)
			}
		}
		lines[i] = strings.Join(kept, "; ")
	}
	left := lines[:0:0]
	for _, line := range lines {
		if line != "" {
			left = append(left, line)
		}
	}
	if len(left) == 0 {
		delete(h, "Cookie")
		return
	}
	h["Cookie"] = left
}

func setCookie(w http.ResponseWriter, name, value string, life time.Duration) {
	c := &http.Cookie{Name: name, Value: value, Path: "/", Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode, MaxAge: int(life.Seconds())}
	if life <= 0 {
		c.MaxAge = -1
	}
	http.SetCookie(w, c)
}
