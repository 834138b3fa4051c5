// Package visitors signs visitors of Apps in at the identity provider of operators, and tells the
// agent that serves a host who its visitor is. A visitor gets no session here, and need not be an
// operator.
package visitors

import (
	"context"
	"net/url"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/openid"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/idtoken"
	"github.com/pipeops/pipeops-vm-agent/internal/limit"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

const (
	// signInBurst is how many sign-ins a person has at once, and signInEvery when one more: each is
	// a row of the database, and a record of the audit log.
	signInBurst = 30
	signInEvery = 10 * time.Second
)

// Config is what the sign-in of visitors needs.
type Config struct {
	Store *store.Store
	// Agent returns the agent that serves a host now; empty for none.
	Agent func(host string) (agentID string)
	// Return is the address of a host to which a visitor returns.
	Return func(host string) string
	// Record keeps a sign-in, or why it was refused.
	Record func(ctx context.Context, in SignIn, err error)
	Log    zerolog.Logger
	Now    func() time.Time
}

// SignIn is a visitor's sign-in, for the audit log.
type SignIn struct {
	Host  string `json:"host"`
	Agent string `json:"agent"`
	// Subject is empty if the provider has identified no one.
	Subject string `json:"subject,omitempty"`
	// Email is one that the provider has verified; else it is empty.
	Email string `json:"email,omitempty"`
}

// about notes whom the identity provider has identified.
func (in *SignIn) about(person openid.Visitor) {
	in.Subject = person.Subject
	if person.EmailVerified {
		in.Email = person.Email
	}
}

// Visitors signs visitors in. It keeps nothing of a sign-in before the person was identified.
type Visitors struct {
	Config
	// Provider identifies people; nil for none. It is set before the first call.
	Provider *openid.Provider

	people *limit.Failures[string] // sign-ins, by subject
}

// New returns what signs visitors in.
func New(cfg Config) *Visitors {
	return &Visitors{Config: cfg, people: limit.NewFailures[string](signInBurst, signInEvery)}
}

// Ask returns the host that has sent a browser here with a query, and the query with which the
// sign-in begins in the browser that keeps this secret.
func (v *Visitors) Ask(secret string, query url.Values) (host string, begin url.Values, err error) {
	r, err := requestOf(query)
	if err != nil {
		return "", nil, err
	}
	if _, err := v.agentOf(r.Host); err != nil {
		return "", nil, err
	}
	note := r.note()
	return r.Host, url.Values{paramRequest: {note}, paramConfirm: {derived(secret, purposeConfirm, note)}}, nil
}

// Begin returns the address of the identity provider to which a browser is sent that has confirmed
// what Ask returned.
func (v *Visitors) Begin(ctx context.Context, secret string, query url.Values) (address string, err error) {
	note := query.Get(paramRequest)
	if secret == "" || !idtoken.Same(query.Get(paramConfirm), derived(secret, purposeConfirm, note)) {
		return "", problem.Errorf(problem.Unauthorized, fixAgain, "this sign-in did not begin in this browser, or it took too long")
	}
	r, err := parse(note)
	if err != nil {
		return "", err
	}
	if _, err := v.agentOf(r.Host); err != nil {
		return "", err
	}
	address, err = v.Provider.Address(ctx, note+noteEnd, derived(secret, purposeLogin, note))
	return address, openid.ForVisitor(err)
}

// Return returns the address of the host to which a visitor returns, with a code by which the
// host's agent learns who that is. The query is the identity provider's.
func (v *Visitors) Return(ctx context.Context, secret string, query url.Values) (address string, err error) {
	note, ok := noteOf(query)
	if !ok || secret == "" {
		return "", problem.Errorf(problem.Unauthorized, fixAgain, "this sign-in did not begin in this browser, or it took too long")
	}
	r, err := parse(note)
	if err != nil {
		return "", err
	}
	in := SignIn{Host: r.Host}
	if in.Agent, err = v.agentOf(r.Host); err != nil {
		return "", err
	}
	person, err := v.Provider.Visitor(ctx, note+noteEnd, derived(secret, purposeLogin, note), query)
	if refused, ok := problem.Of(err); err != nil && (!ok || refused.Passing()) {
		return "", err // the person was neither identified nor refused
	}
	code := ""
	if err == nil {
		in.about(person)
		code, err = v.issue(ctx, r, in.Agent, person)
	}
	v.Record(ctx, in, err)
	if err != nil {
		return "", err
	}
	return v.Config.Return(r.Host) + "?" + url.Values{"code": {code}, "state": {r.State}}.Encode(), nil
}

// Returns reports whether the query of a browser that returns from the identity provider is of a
// visitor.
func (v *Visitors) Returns(query url.Values) bool {
	_, ok := noteOf(query)
	return ok
}

// agentOf returns the agent that serves a host.
func (v *Visitors) agentOf(host string) (agentID string, err error) {
	if agentID = v.Agent(host); agentID == "" {
		return "", problem.Errorf(problem.NotFound, "check the address of the App", "no App is served at %.253q", host)
	}
	return agentID, nil
}

// counted counts a sign-in of a person, unless there were too many.
func (v *Visitors) counted(subject string) error {
	now := v.Now()
	if wait := v.people.Wait(subject, now); wait > 0 {
		return problem.Errorf(problem.TooManyRequests, "wait a moment, then open the page of the App again", "you have signed in too often").WithRetryAfter(wait)
	}
	v.people.Failed(subject, now)
	return nil
}
