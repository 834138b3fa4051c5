package signin

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

const (
	// sessionFor is how long a visitor is signed in.
	sessionFor = 8 * time.Hour
	// maxCookie bounds a cookie's value, in bytes: browsers keep 4096, name and attributes
	// included.
	maxCookie = 3800
	// Bounds of what is kept of a person, in bytes; subjects have 255 (OpenID Connect Core, section
	// 2), and addresses 254 (RFC 5321).
	maxSubject, maxEmail, maxName, maxGroups = 255, 254, 200, 1800
)

// session is what a visitor's browser keeps, sealed.
type session struct {
	Subject  string   `json:"s"`
	Email    string   `json:"e,omitempty"` // verified
	Name     string   `json:"n,omitempty"`
	Groups   []string `json:"g,omitempty"` // those that the route names
	Expires  int64    `json:"x"`           // Unix time
	Provider string   `json:"p"`           // digest of ProviderID
}

// sessionOf returns the session of a person whom the provider has identified.
func (d *Demand) sessionOf(p Person, now time.Time) (session, error) {
	if p.Subject == "" || len(p.Subject) > maxSubject || !plain(p.Subject) {
		return session{}, problem.Errorf(problem.Unauthorized, "have the identity provider send another sub", "the identity provider sent no sub of 1 to %d characters that can be shown", maxSubject)
	}
	s := session{Subject: p.Subject, Expires: now.Add(sessionFor).Unix(), Provider: digestOf(d.ProviderID)}
	if p.EmailVerified && len(p.Email) <= maxEmail && plain(p.Email) && !strings.ContainsAny(p.Email, " ,") {
		s.Email = p.Email
	}
	if len(p.Name) <= maxName && plain(p.Name) {
		s.Name = p.Name
	}
	size := 0
	for _, group := range d.Groups {
		if size += len(group); size <= maxGroups && plain(group) && !strings.Contains(group, ",") && slices.Contains(p.Groups, group) {
			s.Groups = append(s.Groups, group)
		}
	}
	return s, nil
}

// plain reports whether a text has nothing but what can be shown, so that it fits a header.
func plain(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })
}

// current reports whether a session lets its visitor in.
func (d *Demand) current(s session, now time.Time) bool {
	return now.Unix() < s.Expires && s.Provider == digestOf(d.ProviderID) && d.admits(s.Email, s.Groups)
}

func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}

// sessions is the sealer of an App's sessions at a host.
func (d *Demand) sessions(host string) sealer { return d.Key.sealer("session", host, d.App) }

func (d *Demand) sealSession(host string, s session) (string, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return "", err
	}
	return version + d.sessions(host).seal(text, ""), nil
}

// version begins the value of a session, and changes with its form.
const version = "1."

func (d *Demand) openSession(host, value string) (s session, ok bool) {
	sealed, ok := strings.CutPrefix(value, version)
	if !ok || len(value) > maxCookie {
		return session{}, false
	}
	text, ok := d.sessions(host).open(sealed, "")
	return s, ok && json.Unmarshal(text, &s) == nil
}
