package ca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"net/url"
	"slices"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/trustanchor"
)

const (
	intermediateLifetime = 3 * 365 * 24 * time.Hour
	// RenewBefore is how long before its end an intermediate CA is replaced. A Runner's certificate
	// of a year then ends in time.
	RenewBefore = 365 * 24 * time.Hour
	// settle is how long a new intermediate CA signs nothing, so that the other control planes know
	// it before they meet its certificates.
	settle = time.Minute
)

// Domains are those of the names in certificates. The intermediate CAs are constrained to them.
type Domains struct {
	Trust  string // of SPIFFE IDs
	Agents string // of the agents' server names
}

// peers is the domain of the control planes' names among each other.
func (d Domains) peers() string { return "controlplane." + d.Trust }

// authority is a root CA with the intermediate CAs that it has signed, the newest first. The root's
// key is nil while it is kept elsewhere, an intermediate's once it was replaced twice.
type authority struct {
	pair
	intermediates []pair
}

// signer returns the intermediate CA that signs for a role: the newest that has settled. Its key is
// nil if none can sign.
func (a *authority) signer(role string, now time.Time) (found pair) {
	for _, i := range a.intermediates {
		if i.key == nil || trustanchor.RoleOf(i.cert) != role || now.After(i.cert.NotAfter) {
			continue
		}
		found = i
		if !now.Before(i.cert.NotBefore.Add(backdate + settle)) {
			break
		}
	}
	return found
}

// newest returns the intermediate CA of a role that was made last; its key is nil if there is none.
func (a *authority) newest(role string) pair {
	i := slices.IndexFunc(a.intermediates, func(p pair) bool { return trustanchor.RoleOf(p.cert) == role })
	if i < 0 {
		return pair{}
	}
	return a.intermediates[i]
}

// due returns the roles whose intermediate CAs are to be made or replaced.
func (a *authority) due(d Domains, now time.Time) (roles []string) {
	for _, role := range leafRoles {
		newest := a.newest(role)
		ending := newest.key != nil && newest.cert.NotAfter.Sub(now) < RenewBefore && newest.cert.NotAfter.Before(a.cert.NotAfter)
		if newest.key == nil || !d.fit(newest.cert, role) || ending {
			roles = append(roles, role)
		}
	}
	return roles
}

// renewed returns the CA with new intermediate CAs for some roles. What each replaces signs until
// the new one has settled.
func (a *authority) renewed(roles []string, d Domains, now time.Time) (authority, error) {
	next := authority{pair: a.pair}
	for _, role := range roles {
		made, err := a.intermediate(role, d, now)
		if err != nil {
			return authority{}, err
		}
		next.intermediates = append(next.intermediates, made)
	}
	replaced := map[string]bool{}
	for _, old := range a.intermediates {
		role := trustanchor.RoleOf(old.cert)
		if slices.Contains(roles, role) && (replaced[role] || !d.fit(old.cert, role)) {
			old.key = nil
		}
		replaced[role] = true
		next.intermediates = append(next.intermediates, old)
	}
	return next, nil
}

// intermediate makes the CA that signs certificates of one role.
func (a *authority) intermediate(role string, d Domains, now time.Time) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, err
	}
	serial, err := newSerial()
	if err != nil {
		return pair{}, err
	}
	end := now.Add(intermediateLifetime)
	if end.After(a.cert.NotAfter) {
		end = a.cert.NotAfter
	}
	template := &x509.Certificate{
		SerialNumber: serial, PublicKey: key.Public(),
		Subject:   pkix.Name{CommonName: fmt.Sprintf("%s %s %s", a.cert.Subject.CommonName, role, serial.Text(16)[:8]), Organization: a.cert.Subject.Organization},
		NotBefore: now.Add(-backdate), NotAfter: end, MaxPathLenZero: true,
	}
	d.constrain(template, role)
	cert, err := certify(template, a.cert, a.pair)
	if err != nil {
		return pair{}, err
	}
	return pair{cert, key}, nil
}

// noAddress excludes every IP address.
func noAddress() []*net.IPNet {
	return []*net.IPNet{{IP: net.IPv4zero.To4(), Mask: make(net.IPMask, net.IPv4len)}, {IP: net.IPv6zero, Mask: make(net.IPMask, net.IPv6len)}}
}

// constrain sets what a role's intermediate CA may sign (RFC 5280, section 4.2.1.10). The control
// plane's listeners may have any name, but no SPIFFE ID.
func (d Domains) constrain(template *x509.Certificate, role string) {
	template.URIs = []*url.URL{trustanchor.IntermediateURI(d.Trust, role)}
	template.PermittedDNSDomainsCritical = true
	client, server := x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth
	if role == RoleServer {
		template.ExcludedURIDomains = []string{d.Trust}
		template.ExtKeyUsage = []x509.ExtKeyUsage{server}
		return
	}
	template.PermittedURIDomains, template.ExcludedIPRanges = []string{d.Trust}, noAddress()
	template.ExtKeyUsage = []x509.ExtKeyUsage{client, server}
	switch role {
	case RoleAgent:
		template.PermittedDNSDomains = []string{d.Agents}
	case RoleControlPlane:
		template.PermittedDNSDomains = []string{d.peers()}
	default: // Runners and operators are not servers
		template.ExtKeyUsage = []x509.ExtKeyUsage{client}
	}
}

// fit reports whether an intermediate CA is for these domains.
func (d Domains) fit(intermediate *x509.Certificate, role string) bool {
	var want x509.Certificate
	d.constrain(&want, role)
	return len(intermediate.URIs) == 1 && intermediate.URIs[0].String() == want.URIs[0].String() &&
		slices.Equal(intermediate.PermittedDNSDomains, want.PermittedDNSDomains)
}

// ForDomains reports whether there are intermediate CAs for the domains of this control plane.
func (c *CA) ForDomains() bool {
	signing := &c.state.Load().signing
	return !slices.ContainsFunc(leafRoles, func(role string) bool {
		newest := signing.newest(role)
		return newest.cert == nil || !c.domains.fit(newest.cert, role)
	})
}

// Upkeep replaces the intermediate CAs that end within RenewBefore, or are for other domains, and
// reports whether there were any. It returns a RootAwayError if the root's key is needed for that.
// Like a step of a rotation, it needs the caller's lock.
func (c *CA) Upkeep() (bool, error) {
	if err := c.load(); err != nil {
		return false, err
	}
	next, made, err := c.planUpkeep()
	if err != nil || len(made) == 0 {
		return false, err
	}
	for _, p := range made {
		if err := c.record(p.cert, reasonIntermediate); err != nil {
			return false, err
		}
	}
	return true, c.replace(next)
}

// UpkeepDue reports whether Upkeep would change anything, or fail.
func (c *core) UpkeepDue() (bool, error) {
	s := c.state.Load()
	for _, a := range s.trustedNow() {
		if roles := a.due(c.domains, c.now()); len(roles) > 0 {
			if a.key == nil {
				return true, &RootAwayError{For: "renewing its intermediate CAs, which end at " + a.ends(c.now()).Format(time.RFC3339)}
			}
			return true, nil
		}
	}
	return false, nil
}

func (c *core) planUpkeep() (*state, []pair, error) {
	if due, err := c.UpkeepDue(); err != nil || !due {
		return nil, nil, err
	}
	s := c.state.Load()
	next := &state{stage: s.stage, cross: s.cross, former: s.former}
	signing, made, err := c.upkeep(&s.signing)
	if err != nil {
		return nil, nil, err
	}
	next.signing = *signing
	if s.other != nil {
		other, more, err := c.upkeep(s.other)
		if err != nil {
			return nil, nil, err
		}
		next.other, made = other, append(made, more...)
	}
	return next, made, nil
}

func (c *core) upkeep(a *authority) (*authority, []pair, error) {
	roles := a.due(c.domains, c.now())
	if len(roles) == 0 || a.key == nil {
		return a, nil, nil
	}
	next, err := a.renewed(roles, c.domains, c.now())
	if err != nil {
		return nil, nil, err
	}
	return &next, next.intermediates[:len(roles)], nil
}

// ends returns when the first of the newest intermediate CAs ends.
func (a *authority) ends(now time.Time) time.Time {
	end := a.cert.NotAfter
	for _, role := range leafRoles {
		newest := a.newest(role)
		if newest.cert == nil {
			return now
		}
		if newest.cert.NotAfter.Before(end) {
			end = newest.cert.NotAfter
		}
	}
	return end
}

// IntermediatesEnd returns when the first of the intermediate CAs ends.
func (c Trust) IntermediatesEnd() time.Time { return c.state.Load().signing.ends(c.now()) }

// Intermediates returns the newest intermediate CA of each role, in the order of Roles.
func (c Trust) Intermediates() (certs []*x509.Certificate) {
	s := c.state.Load()
	for _, role := range leafRoles {
		if newest := s.signing.newest(role); newest.cert != nil {
			certs = append(certs, newest.cert)
		}
	}
	return certs
}
