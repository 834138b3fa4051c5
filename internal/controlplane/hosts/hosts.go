// Package hosts decides which agent may serve which public host. An agent claims a host by naming
// it in its routes, which proves nothing. A host below the gateway's own domain is given to the
// agent of whose App it is made. Any other host is proven by a DNS record, or granted by the
// operator.
//
// The package does not route requests: package gateway does, by what this one has decided.
package hosts

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

// What proves that an agent may serve a host.
const (
	Given = controlapi.ProofGiven // the host is made for an App of the agent, below the gateway's domain
	CNAME = "cname"
	TXT   = "txt"
	Grant = "grant" // of the operator
)

const (
	// Grace is how long a host is still served after its proof was first missed.
	Grace = 24 * time.Hour
	// again is when a proof that is there is looked at again.
	again = 24 * time.Hour
	// soon is how often one that is missing is looked for while its claim is young, and late is how
	// often after that. Where several agents name a host, each claim is looked at as often as soon.
	soon, late = 30 * time.Second, 15 * time.Minute
	// young is how long a claim counts as young: a person is setting up DNS.
	young = time.Hour
)

// strength orders proofs: the operator's word counts most, then where DNS leads to.
var strength = map[string]int{Grant: 4, CNAME: 3, TXT: 2, Given: 1}

// Usable reports whether a claim is proven, or was until a day ago at most.
func Usable(c store.HostClaim, now time.Time) bool {
	return c.Proof != "" && (c.LostAt.IsZero() || now.Sub(c.LostAt) < Grace)
}

// Owner returns the claim whose agent serves the host: of those that are proven, the one with the
// strongest proof, and of equal ones the oldest. Who only was first owns nothing.
func Owner(claims []store.HostClaim, now time.Time) (owner store.HostClaim, ok bool) {
	for _, c := range claims {
		if Usable(c, now) && (!ok || before(c, owner)) {
			owner, ok = c, true
		}
	}
	return owner, ok
}

// before reports whether a owns a host rather than b. A proof that is there is better than one that
// was lost within the grace.
func before(a, b store.HostClaim) bool {
	if a.LostAt.IsZero() != b.LostAt.IsZero() {
		return a.LostAt.IsZero()
	}
	return cmp.Or(cmp.Compare(strength[b.Proof], strength[a.Proof]), a.ProvenAt.Compare(b.ProvenAt), cmp.Compare(a.AgentID, b.AgentID)) < 0
}

// Claim returns a new claim to a host. routes are those of the agent, and others all claims to the
// host.
func Claim(agent store.Agent, host string, routes []store.Route, domain string, others []store.HostClaim, now time.Time) store.HostClaim {
	c := store.HostClaim{AgentID: agent.ID, Host: host, ClaimedAt: now}
	if !controlapi.WithinDomain(host, domain) {
		c.Reason = Missing(agent.ID, host, domain)
		return c // NextAt is zero: it is due
	}
	c.CheckedAt, c.NextAt = now, now.Add(late)
	own := func(r store.Route) bool {
		return r.Host == host && controlapi.GivenHost(r.App, r.Namespace, agent.ID, domain) == host
	}
	switch {
	case !slices.ContainsFunc(routes, own): // of others the agent itself passes none on
		c.Reason = "the host is below the gateway's domain, and is not this App's; leave the host out, or use one of your own"
		c.NextAt = time.Time{} // the operator may have granted it
	case slices.ContainsFunc(others, func(o store.HostClaim) bool { return o.AgentID != agent.ID && o.Proof != "" }):
		c.Reason = "another agent has the same host; rename the App"
	default:
		c.Proof, c.ProvenAt, c.NextAt = Given, now, now.Add(again)
	}
	return c
}

// Renew is Claim for a claim that is there already.
func Renew(c store.HostClaim, agent store.Agent, routes []store.Route, domain string, others []store.HostClaim, now time.Time) store.HostClaim {
	fresh := Claim(agent, c.Host, routes, domain, others, now)
	fresh.ClaimedAt = c.ClaimedAt
	if fresh.Proof == c.Proof && fresh.Proof != "" {
		fresh.ProvenAt = c.ProvenAt
	}
	if fresh.NextAt.IsZero() {
		fresh.NextAt = now.Add(late)
	}
	return fresh
}

// Missing returns what to do so that a host is proven.
func Missing(agentID, host, domain string) string {
	if domain == "" {
		return "the control plane has no gateway"
	}
	var records []string
	for _, r := range controlapi.Proofs(agentID, host, domain) {
		records = append(records, r.String())
	}
	return "the host is not proven; set " + strings.Join(records, ", or ")
}

// Status returns what the control plane says to an agent about a host. claims are all claims to it.
func Status(agentID, host string, claims []store.HostClaim, now time.Time) controlapi.HostStatus {
	status := controlapi.HostStatus{Host: host, Reason: "the control plane has not looked at the host yet"}
	owner, owned := Owner(claims, now)
	for _, c := range claims {
		if c.AgentID != agentID {
			continue
		}
		status.Proof, status.Reason, status.Served = c.Proof, c.Reason, owned && owner.AgentID == agentID
		if status.Served {
			status.Mode, status.ModeReason = cmp.Or(c.Mode, controlapi.ModeTunnel), c.ModeReason
		}
		if owned && owner.AgentID != agentID && Usable(c, now) {
			status.Reason = "another agent has a better proof of the host"
		}
	}
	return status
}

// found changes a claim by what was found now: a proof, or the reason why there is none.
func found(c store.HostClaim, proof, reason string, now time.Time) store.HostClaim {
	c.CheckedAt = now
	if proof != "" {
		if c.Proof == "" {
			c.ProvenAt = now
		}
		c.Proof, c.LostAt, c.Reason, c.NextAt = proof, time.Time{}, "", now.Add(again)
		return c
	}
	c.Reason, c.NextAt = reason, now.Add(late)
	if now.Sub(c.ClaimedAt) < young {
		c.NextAt = now.Add(soon)
	}
	switch {
	case c.Proof == "":
	case c.LostAt.IsZero():
		c.LostAt = now
	case now.Sub(c.LostAt) >= Grace:
		c.Proof, c.ProvenAt, c.LostAt = "", time.Time{}, time.Time{}
	}
	return c
}

// unsure changes a claim when DNS could not be asked: nothing is known, so nothing is lost.
func unsure(c store.HostClaim, err error, now time.Time) store.HostClaim {
	c.CheckedAt, c.NextAt = now, now.Add(late)
	if c.Proof == "" {
		c.NextAt, c.Reason = now.Add(soon), "the control plane's DNS resolver failed; have its operator check it: "+err.Error()
	}
	return c
}

// ByHost yields the claims to each host, of claims that are ordered by it.
func ByHost(claims []store.HostClaim) iter.Seq[[]store.HostClaim] {
	return func(yield func([]store.HostClaim) bool) {
		for len(claims) > 0 {
			n := 1
			for n < len(claims) && claims[n].Host == claims[0].Host {
				n++
			}
			if !yield(claims[:n]) {
				return
			}
			claims = claims[n:]
		}
	}
}
