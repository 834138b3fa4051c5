package visitors

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"regexp"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/decode"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

const fixAgain = "open the page of the App again"

// The parameters by which a confirmed sign-in begins.
const (
	paramRequest = "request"
	paramConfirm = "confirm"
)

// What is derived from a browser's secret. A value of one purpose is none of another.
const (
	purposeConfirm = "confirm"
	purposeLogin   = "login"
)

// noteEnd ends the note in a state. No note contains it, and no state of an operator's sign-in.
const noteEnd = "."

const (
	// maxState bounds an agent's state, in bytes.
	maxState = 2048
	// maxNote bounds a note, in bytes: the longest host and state, as JSON in base64, fit.
	maxNote = 4096
)

var (
	hostPattern      = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$`)
	statePattern     = regexp.MustCompile(`^[A-Za-z0-9._~-]+$`)
	challengePattern = regexp.MustCompile(`^[A-Za-z0-9_-]{43}$`)
	verifierPattern  = regexp.MustCompile(`^[A-Za-z0-9._~-]{43,128}$`)
)

// request is what an agent wants to know of a visitor whom it has sent here.
type request struct {
	// ID is ours, so that no two sign-ins of a browser are equal.
	ID        string `json:"i"`
	Host      string `json:"h"`
	State     string `json:"s"`
	Challenge string `json:"c"`
}

// requestOf reads the query with which an agent has sent a browser here.
func requestOf(query url.Values) (request, error) {
	r := request{ID: rand.Text(), Host: query.Get(controlapi.VisitorHost), State: query.Get(controlapi.VisitorState), Challenge: query.Get(controlapi.VisitorChallenge)}
	return r, r.check()
}

func (r request) check() error {
	bad := func(name, what string) error {
		return problem.Errorf(problem.Invalid, "open the page of the App; do not change the address by hand", "%s is not %s", name, what).WithField(name)
	}
	switch {
	case len(r.Host) > 253 || !hostPattern.MatchString(r.Host):
		return bad(controlapi.VisitorHost, "a DNS name in lower case, without a port")
	case len(r.State) > maxState || !statePattern.MatchString(r.State):
		return bad(controlapi.VisitorState, "1 to 2048 characters of A-Z a-z 0-9 - . _ ~")
	case !challengePattern.MatchString(r.Challenge):
		return bad(controlapi.VisitorChallenge, "a challenge of the method S256")
	}
	return nil
}

// note is the request as the state carries it to the identity provider and back.
func (r request) note() string {
	text, err := json.Marshal(r)
	if err != nil { // it is text alone
		panic(err)
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// parse reads a note.
func parse(note string) (request, error) {
	var r request
	text, err := base64.RawURLEncoding.DecodeString(note)
	if err == nil && len(note) <= maxNote {
		err = decode.LimitsFor(maxNote).JSON(text, &r)
	}
	if err != nil || len(note) > maxNote {
		return request{}, problem.Errorf(problem.Invalid, fixAgain, "the sign-in cannot be read").WithField(paramRequest)
	}
	return r, r.check()
}

// noteOf returns the note in the state with which the identity provider has sent a browser back.
func noteOf(query url.Values) (note string, ok bool) {
	note, _, ok = strings.Cut(query.Get("state"), noteEnd)
	return note, ok && note != "" && len(note) <= maxNote
}

// derived returns what follows from a browser's secret and a note for a purpose.
func derived(secret, purpose, note string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(purpose))
	mac.Write([]byte{0})
	mac.Write([]byte(note))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}
