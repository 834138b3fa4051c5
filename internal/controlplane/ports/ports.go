// Package ports decides which App has which public port of the gateway. An agent's report that an
// App wants a port is a claim. A port is one App's: the older claim keeps it.
//
// The package listens nowhere: package gateway does, by what this one has decided.
package ports

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
)

// Ruling is what is decided about a claim.
type Ruling struct {
	store.PortClaim
	// Served reports that the App has the port, and Reason is why it has not.
	Served bool
	Reason string
	// Holder is who has the port that the claim wants; nil if that is not the reason.
	Holder *store.PortClaim
}

// Why an App has no port. They do not name others' Apps: agents of several owners read them.
const (
	reasonNone  = "the operator has opened no %s ports of the gateway; have the operator set %s"
	reasonInUse = "the port is in use by another App; name another publicPort, or leave it out"
	reasonFull  = "no %s port of the gateway is free; have the operator open more with %s"
	reasonShare = "the agent or the namespace has its share of the gateway's %s ports; have the operator open more with %s, or remove some"
)

// Settle decides about all claims. open are the ports that the operator has opened. A claim that is
// younger changes nothing about an older one. Ports of TCP and of UDP have nothing to do with each
// other.
func Settle(claims []store.PortClaim, open Open) []Ruling {
	claims = slices.Clone(claims)
	slices.SortFunc(claims, older)
	taken := map[string]*shares{gatewaywire.TCP: newShares(open.TCP), gatewaywire.UDP: newShares(open.UDP)}
	rulings := make([]Ruling, 0, len(claims))
	for i := range claims {
		if of := taken[claims[i].Protocol]; of != nil {
			rulings = append(rulings, of.settle(&claims[i]))
		}
	}
	return rulings
}

func older(a, b store.PortClaim) int {
	return cmp.Or(a.ClaimedAt.Compare(b.ClaimedAt), cmp.Compare(a.AgentID, b.AgentID), cmp.Compare(a.Namespace, b.Namespace),
		cmp.Compare(a.App, b.App), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Protocol, b.Protocol))
}

// maxShown bounds the ports in a reason.
const maxShown = 100

func shortened(open Set) string {
	text := open.String()
	if len(text) > maxShown {
		return text[:maxShown] + "..."
	}
	return text
}

// shares counts ports of one protocol. An agent, and a namespace of it, get at most twice as many
// as are free, as limit.NewFairShares does. So one that has none finds one, however many the others
// want.
type shares struct {
	open  Set
	by    map[string]int
	ports map[int]*store.PortClaim
}

func newShares(open Set) *shares {
	return &shares{open, map[string]int{}, map[int]*store.PortClaim{}}
}

// settle decides about a claim after all that are older.
func (s *shares) settle(c *store.PortClaim) Ruling {
	r, flag := Ruling{PortClaim: *c}, "--gateway-"+strings.ToLower(c.Protocol)+"-ports"
	holder := s.ports[c.Public()]
	switch {
	case len(s.open) == 0:
		r.Reason = fmt.Sprintf(reasonNone, c.Protocol, flag)
	case c.Public() == 0:
		r.Reason = fmt.Sprintf(reasonFull, c.Protocol, flag)
	case !s.open.Has(c.Public()):
		r.Reason = fmt.Sprintf("the operator has not opened port %d of %s; leave publicPort out, or name one of %s", c.Public(), c.Protocol, shortened(s.open))
	case holder != nil:
		r.Reason, r.Holder = reasonInUse, holder
	case !s.has(*c):
		r.Reason = fmt.Sprintf(reasonShare, c.Protocol, flag)
	default:
		r.Served = true
		s.take(c)
	}
	return r
}

func (s *shares) has(c store.PortClaim) bool {
	free := len(s.open) - len(s.ports)
	return s.by[c.AgentID] < 2*free && s.by[c.AgentID+"/"+c.Namespace] < 2*free
}

func (s *shares) take(c *store.PortClaim) {
	s.ports[c.Public()] = c
	s.by[c.AgentID]++
	s.by[c.AgentID+"/"+c.Namespace]++
}

// Choose gives the agent's claims that name no port one that is free, and returns those that it has
// changed. A port that was chosen stays, unless the operator has closed it or another App has it.
func Choose(claims []store.PortClaim, agentID string, open Open) (changed []store.PortClaim) {
	rulings := Settle(claims, open)
	for _, protocol := range []string{gatewaywire.TCP, gatewaywire.UDP} {
		changed = append(changed, choose(rulings, agentID, protocol, open.Of(protocol))...)
	}
	return changed
}

// choose is Choose for one protocol.
func choose(all []Ruling, agentID, protocol string, open Set) (changed []store.PortClaim) {
	rulings := slices.DeleteFunc(slices.Clone(all), func(r Ruling) bool { return r.Protocol != protocol })
	served, named := map[int]bool{}, map[int]bool{}
	for _, r := range rulings {
		served[r.Public()] = served[r.Public()] || r.Served
		named[r.Public()] = true
	}
	for _, r := range rulings {
		if r.AgentID != agentID || r.Wanted != 0 || r.Served || r.Chosen != 0 && open.Has(r.Chosen) && !served[r.Chosen] {
			continue
		}
		was := r.Chosen
		if r.Chosen = free(open, named); r.Chosen == 0 {
			r.Chosen = free(open, served) // named by Apps that do not get it
		}
		served[r.Chosen], named[r.Chosen] = true, true
		if r.Chosen != was {
			changed = append(changed, r.PortClaim)
		}
	}
	return changed
}

// free returns the highest port that is not taken, because the well-known ones are low, and Apps
// name them; 0 if there is none.
func free(open Set, taken map[int]bool) int {
	for _, port := range slices.Backward(open) {
		if !taken[port] {
			return port
		}
	}
	return 0
}

// Follow returns the claims of an agent that wants these now, in place of those that it had. A
// claim that stays as it was keeps its time and its port.
func Follow(had, wanted []store.PortClaim, now time.Time) []store.PortClaim {
	type key struct {
		namespace, app, protocol string
		port                     int
	}
	keyOf := func(c store.PortClaim) key { return key{c.Namespace, c.App, c.Protocol, c.Port} }
	known := make(map[key]store.PortClaim, len(had))
	for _, c := range had {
		known[keyOf(c)] = c
	}
	claims := make([]store.PortClaim, 0, len(wanted))
	for _, c := range wanted {
		c.ClaimedAt, c.Chosen = now, 0
		if was, ok := known[keyOf(c)]; ok && was.Wanted == c.Wanted {
			c.ClaimedAt, c.Chosen = was.ClaimedAt, was.Chosen
		}
		claims = append(claims, c)
	}
	return claims
}
