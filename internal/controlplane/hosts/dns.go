package hosts

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
)

const (
	askTimeout = 5 * time.Second
	// maxChain bounds how many CNAME records are followed, and maxTexts how many TXT records of a
	// name are read.
	maxChain, maxTexts = 8, 64
)

// Resolver asks DNS servers. It follows CNAME records by itself, because it has to see each of
// them.
type Resolver struct{ Servers []string }

// SystemResolver asks the servers that this machine uses.
func SystemResolver() (*Resolver, error) {
	cfg, err := dns.ClientConfigFromFile("/etc/resolv.conf")
	if err != nil {
		return nil, fmt.Errorf("read which DNS servers to ask: %w", err)
	}
	r := &Resolver{}
	for _, s := range cfg.Servers {
		r.Servers = append(r.Servers, net.JoinHostPort(s, cfg.Port))
	}
	return r, nil
}

// Prove returns the proof that DNS has of an agent's claim to a host; empty for none. An error
// means that DNS gave no answer.
func (r *Resolver) Prove(ctx context.Context, agentID, host, domain string) (proof string, err error) {
	var failed error
	if !strings.HasPrefix(host, "*.") {
		leads, err := r.leadsTo(ctx, host, controlapi.ProofTarget(agentID, domain))
		if err == nil && leads {
			return CNAME, nil
		}
		failed = err
	}
	name, value := controlapi.ProofRecord(agentID, host)
	texts, err := r.texts(ctx, name)
	for _, text := range texts {
		if strings.EqualFold(text, value) {
			return TXT, nil
		}
	}
	return "", errors.Join(failed, err)
}

// leadsTo reports whether the CNAME records of a host lead to a name.
func (r *Resolver) leadsTo(ctx context.Context, host, want string) (bool, error) {
	want = dns.Fqdn(want)
	name := dns.Fqdn(host)
	for range maxChain {
		answer, err := r.ask(ctx, name, dns.TypeCNAME)
		if err != nil {
			return false, err
		}
		next := ""
		for _, record := range answer {
			if c, ok := record.(*dns.CNAME); ok && strings.EqualFold(c.Hdr.Name, name) {
				next = c.Target
			}
		}
		switch {
		case next == "":
			return false, nil
		case strings.EqualFold(next, want):
			return true, nil
		}
		name = next
	}
	return false, nil
}

// Addresses returns the addresses of a host.
func (r *Resolver) Addresses(ctx context.Context, host string) (addresses []string, err error) {
	for _, kind := range []uint16{dns.TypeA, dns.TypeAAAA} {
		answer, failed := r.ask(ctx, dns.Fqdn(host), kind)
		if failed != nil {
			err = failed
		}
		for _, record := range answer {
			switch record := record.(type) {
			case *dns.A:
				addresses = append(addresses, record.A.String())
			case *dns.AAAA:
				addresses = append(addresses, record.AAAA.String())
			}
		}
	}
	if len(addresses) > 0 {
		return addresses, nil
	}
	return nil, err
}

func (r *Resolver) texts(ctx context.Context, name string) (texts []string, err error) {
	answer, err := r.ask(ctx, dns.Fqdn(name), dns.TypeTXT)
	for _, record := range answer[:min(len(answer), maxTexts)] {
		if t, ok := record.(*dns.TXT); ok {
			texts = append(texts, strings.Join(t.Txt, ""))
		}
	}
	return texts, err
}

// ask returns the answer of the first server that gives one. That a name does not exist is an
// answer without records.
func (r *Resolver) ask(ctx context.Context, name string, kind uint16) ([]dns.RR, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	failed := errors.New("there is no DNS server to ask")
	for _, server := range r.Servers {
		question := new(dns.Msg).SetQuestion(name, kind)
		question.SetEdns0(1232, false)
		answer, err := r.exchange(ctx, question, server)
		switch {
		case err != nil:
			failed = err
		case answer.Rcode == dns.RcodeSuccess, answer.Rcode == dns.RcodeNameError:
			return answer.Answer, nil
		default:
			failed = fmt.Errorf("%s answered %s for %s", server, dns.RcodeToString[answer.Rcode], name)
		}
	}
	return nil, failed
}

func (r *Resolver) exchange(ctx context.Context, question *dns.Msg, server string) (*dns.Msg, error) {
	for _, network := range []string{"udp", "tcp"} {
		answer, _, err := (&dns.Client{Net: network, Timeout: askTimeout / 2}).ExchangeContext(ctx, question, server)
		if err != nil || !answer.Truncated || network == "tcp" {
			return answer, err
		}
	}
	return nil, errors.New("the answer is cut off")
}
