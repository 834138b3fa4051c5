package controlplane

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/hosts"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/printable"
)

const (
	// publicHealthEvery is how often the gateway's domain, certificates and proofs are looked at.
	publicHealthEvery = time.Minute
	// shownHosts bounds the hosts that a check names.
	shownHosts = 5
	// askAtOnce is how many certificates are looked for at a time.
	askAtOnce = 8
)

// publicHealth is what was last found of the gateway's domain, certificates and proofs. A readiness
// check must not wait for DNS.
type publicHealth struct {
	domain, certificates, proofs atomic.Pointer[finding]
}

type finding struct {
	ok   bool
	text string
}

// watchHealth looks until the context ends.
func (p *public) watchHealth(ctx context.Context) error {
	tick := time.NewTicker(publicHealthEvery)
	defer tick.Stop()
	for {
		p.lookAtHealth(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (p *public) lookAtHealth(ctx context.Context) {
	p.health.domain.Store(domainHealth(ctx, p.resolver, p.domain))
	found, missing := certificateHealth(ctx, p.table, p.certificate)
	if err := p.certs.OwnFault(); err != nil {
		found = &finding{false, printable.Text(err.Error()) + "; " + found.text}
	}
	p.health.certificates.Store(found)
	p.metrics.ObserveCertificates(missing, p.certs.Ends(p.table.Hosts()))
	limited, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	if f, named, unproven, err := proofHealth(limited, p.store, p.now()); err == nil {
		p.health.proofs.Store(f)
		p.metrics.ObserveClaims(named, unproven)
	}
}

// domainHealth looks whether the wildcard of the domain is in DNS. Where it leads to may be a load
// balancer, so that is not compared.
func domainHealth(ctx context.Context, resolver *hosts.Resolver, domain string) *finding {
	addresses, err := resolver.Addresses(ctx, "gateway-check."+domain)
	switch {
	case err != nil:
		return &finding{false, "DNS could not be asked for *." + domain + ": " + err.Error()}
	case len(addresses) == 0:
		return &finding{false, "*." + domain + " is not in DNS; set an A, AAAA or CNAME record that leads to the gateway"}
	}
	return &finding{true, "*." + domain + " leads to " + strings.Join(addresses[:min(len(addresses), shownHosts)], ", ")}
}

// certificateHealth looks which hosts have no certificate, and returns how many.
func certificateHealth(ctx context.Context, table *gateway.Table, certificate func(context.Context, string) (string, string)) (f *finding, missing int) {
	names := table.Hosts()
	reasons := make([]string, len(names))
	var group errgroup.Group
	group.SetLimit(askAtOnce)
	for i, name := range names {
		group.Go(func() error {
			_, reasons[i] = certificate(ctx, name)
			return nil
		})
	}
	_ = group.Wait() // no function fails
	var failed []string
	for i, reason := range reasons {
		if reason != "" {
			failed = append(failed, names[i]+": "+reason)
		}
	}
	if len(failed) == 0 {
		return &finding{true, fmt.Sprintf("none is missing for %d hosts", len(names))}, 0
	}
	return &finding{false, fmt.Sprintf("%d of %d hosts have none: %s", len(failed), len(names), some(failed))}, len(failed)
}

// proofHealth counts all hosts, and those that no agent has proven. Their owners have to act, so
// that is not a failure.
func proofHealth(ctx context.Context, s *store.Store, now time.Time) (f *finding, total, unproven int, err error) {
	claims, err := s.Claims(ctx)
	if err != nil {
		return nil, 0, 0, err
	}
	var missing []string
	for of := range hosts.ByHost(claims) {
		total++
		if _, owned := hosts.Owner(of, now); !owned {
			missing = append(missing, of[0].Host)
		}
	}
	if len(missing) == 0 {
		return &finding{true, fmt.Sprintf("%d hosts are proven", total)}, total, 0, nil
	}
	f = &finding{true, fmt.Sprintf("%d of %d hosts are not proven: %s; `pipeops-controlplane routes` shows what is missing", len(missing), total, some(missing))}
	return f, total, len(missing), nil
}

// some returns the first of a list.
func some(list []string) string {
	slices.Sort(list)
	text := strings.Join(list[:min(len(list), shownHosts)], ", ")
	if more := len(list) - shownHosts; more > 0 {
		text += fmt.Sprintf(", and %d more", more)
	}
	return text
}

// checkGateway reports on the gateway, if there is one. Agents and Runners are served without it.
func (h *health) checkGateway(r *readiness) {
	p := h.public
	if p == nil {
		return
	}
	counts := h.connections()
	switch {
	case !h.serving.Load():
		r.set("gateway", false, false, "not serving")
	case counts[listenerHTTPS].Failing:
		r.set("gateway", false, false, "accepts no connections; look at the log")
	default:
		r.set("gateway", false, true, fmt.Sprintf("%d hosts are served", p.table.Len()))
	}
	for name, f := range map[string]*finding{
		"gateway-domain": p.health.domain.Load(), "gateway-certificates": p.health.certificates.Load(), "gateway-proofs": p.health.proofs.Load(),
	} {
		if f != nil {
			r.set(name, false, f.ok, f.text)
		}
	}
}
