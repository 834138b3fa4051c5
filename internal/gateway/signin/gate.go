package signin

import (
	"crypto/sha256"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
)

// HeaderToken is the header in which clients send a service token.
const HeaderToken = "Pipeops-Service-Token" //nolint:gosec // a name

// maxSeen bounds how many credentials a gate remembers.
const maxSeen = 4096

// Gate keeps the visitors of a route to what it demands. Several goroutines may use it.
type Gate struct {
	Demand
	signers signers

	mu   sync.Mutex
	seen map[[sha256.Size]byte]visitor
}

// visitor is whom a credential identifies, and what the App is told.
type visitor struct {
	session
	service bool
	signed  string // the statement
	again   time.Time
}

// NewGate returns the gate of a route; nil if nothing is demanded.
func NewGate(d *Demand) *Gate {
	if d == nil {
		return nil
	}
	return &Gate{Demand: *d, seen: map[[sha256.Size]byte]visitor{}}
}

// Verdict is what a gate finds about a request.
type Verdict int

// Stranger has no credential that is valid now, and WrongToken a service token that is none.
const (
	Stranger Verdict = iota
	WrongToken
	Admitted
)

// Admit judges a request to a host. In the header of one that is admitted, it puts what the App is
// told of the visitor in place of the service token. The App's names for that are removed from all
// others.
func (g *Gate) Admit(r *http.Request, host string, now time.Time) (Verdict, error) {
	removeClaims(r.Header)
	if tokens := r.Header[HeaderToken]; len(tokens) > 0 && g.Tokens != nil {
		r.Header.Del(HeaderToken)
		name, ok := g.Tokens.find(tokens[0])
		if !ok || len(tokens) > 1 {
			return WrongToken, nil
		}
		return g.admitService(r.Header, host, name, now)
	}
	value := cookieOf(r.Header, g.sessionCookie())
	if g.Provider == nil || value == "" || len(value) > maxCookie {
		return Stranger, nil
	}
	sum := sha256.Sum256([]byte(host + " " + value))
	v, known := g.recall(sum)
	if !known {
		var ok bool
		if v.session, ok = g.openSession(host, value); !ok {
			return Stranger, nil
		}
	}
	if !g.current(v.session, now) {
		return Stranger, nil
	}
	return g.tell(r.Header, sum, host, v, now)
}

func (g *Gate) admitService(h http.Header, host, name string, now time.Time) (Verdict, error) {
	sum := sha256.Sum256([]byte("service " + host + " " + name))
	v, known := g.recall(sum)
	if !known {
		v = visitor{session: session{Subject: name}, service: true}
	}
	return g.tell(h, sum, host, v, now)
}

func (g *Gate) recall(sum [sha256.Size]byte) (v visitor, known bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	v, known = g.seen[sum]
	return v, known
}

// tell puts into the header what the App is told of a visitor.
func (g *Gate) tell(h http.Header, sum [sha256.Size]byte, host string, v visitor, now time.Time) (Verdict, error) {
	if !now.Before(v.again) {
		s, err := g.signers.of(g.Key, host)
		if err != nil {
			return Stranger, err
		}
		v.again = now.Add(signedAgain)
		if v.signed, err = s.sign(statement{Subject: v.Subject, Email: v.Email, Name: v.Name, Groups: v.Groups, Service: v.service}, host, now); err != nil {
			return Stranger, err
		}
		g.remember(sum, v)
	}
	h.Set(gatewaywire.HeaderVisitor, v.signed)
	h.Set(gatewaywire.HeaderUser, v.Subject)
	if v.Email != "" {
		h.Set(gatewaywire.HeaderEmail, v.Email)
	}
	if len(v.Groups) > 0 {
		h.Set(gatewaywire.HeaderGroups, strings.Join(v.Groups, ","))
	}
	return Admitted, nil
}

func (g *Gate) remember(sum [sha256.Size]byte, v visitor) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.seen) >= maxSeen {
		clear(g.seen)
	}
	g.seen[sum] = v
}

// removeClaims removes what an App could take for what it is told of a visitor.
func removeClaims(h http.Header) {
	for name := range h {
		if gatewaywire.NamesVisitor(name) {
			delete(h, name)
		}
	}
}
