package policy

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// SetPublicHost sets by which host the public reaches an App below the gateway's domain; nil if
// there is no gateway, or none is known yet.
func (p *Policy) SetPublicHost(of func(runnerapi.Key) string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.publicHost = of
}

// Public returns why the public is kept out; empty where it is let in. Nothing is known before the
// policy was read.
//
// A policy that is invalid changes nothing here, so that a mistake in a rule takes no App off the
// web. If no valid one was read before, the public is kept out.
func (p *Policy) Public() (reason string, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.public == nil:
		return "", false
	case *p.public:
		return "", true
	case p.wrong != nil && p.doc.Public == nil:
		return "the policy of the cluster's owner cannot be understood", true
	}
	return "the policy of the cluster's owner keeps the public out (public: false)", true
}

// setPublic is called with the lock held, for a policy that is valid or not.
func (p *Policy) setPublic(doc Document, valid bool) {
	switch {
	case doc.Public != nil:
		p.public = doc.Public
	case valid:
		p.public = new(true)
	case p.public == nil:
		p.public = new(false)
	}
}

// publicKey reads the switch of the ConfigMap, which applies even where policy.yaml is invalid. A
// value that is not a boolean keeps the public out.
func publicKey(data map[string]string) *bool {
	text, set := data[keyPublic]
	if !set {
		return nil
	}
	on, err := strconv.ParseBool(strings.TrimSpace(text))
	on = on && err == nil
	return &on
}

// public checks whether an App may have its host below the gateway's domain.
func (r ruling) public(o runnerapi.ObjectIntent) error {
	if o.Public == "" || r.Public != nil && *r.Public || r.Public == nil && r.Hosts == nil {
		return nil
	}
	if r.Public != nil {
		return r.refuse(o.Public, "public", "allows nothing that is reached from outside")
	}
	if r.intent.PublicHost == nil {
		return r.refuse(o.Public, "public", "allows the hosts %s, and the App's public host is not known: the control plane has no gateway",
			orNone(r.Hosts, "(none)"))
	}
	host := r.intent.PublicHost(runnerapi.Key{Namespace: r.intent.Namespace, Name: cmp.Or(o.Name, r.intent.Name)})
	if likeAny(r.Hosts, host) {
		return nil
	}
	return r.refuse(o.Public, "hosts", "allows the hosts %s, not %s", orNone(r.Hosts, "(none)"), spoken(host))
}
