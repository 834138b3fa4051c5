package runnerapi

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/pipeops/pipeops-vm-agent/internal/limit"
)

var ingressRules = []Rule{
	{
		"ingress", "an ingress needs a TCP port to send requests to",
		`!has(self.ingress) || has(self.ports) && self.ports.exists(p, p.protocol == 'TCP') || !(has(self.ingress.public) && self.ingress.public) && ` +
			`(!has(self.ingress.hosts) || size(self.ingress.hosts) == 0) && has(self.ingress.ports) && size(self.ingress.ports) > 0`,
		func(s AppSpec) bool {
			return s.Ingress == nil || slices.ContainsFunc(s.Ports, Port.tcp) || s.Ingress.portsAlone()
		},
	},
	{
		"ingress.hosts", "an ingress needs a host, public or ports",
		`!has(self.ingress) || has(self.ingress.hosts) && size(self.ingress.hosts) > 0 || has(self.ingress.public) && self.ingress.public || ` +
			`has(self.ingress.ports) && size(self.ingress.ports) > 0`,
		func(s AppSpec) bool {
			return s.Ingress == nil || s.Ingress.Public || len(s.Ingress.Hosts) > 0 || len(s.Ingress.Ports) > 0
		},
	},
	{
		"ingress.ports", "a port is none of the App's ports of that protocol",
		noPorts + `self.ingress.ports.all(h, has(self.ports) && self.ports.exists(p, p.protocol == h.protocol && (has(p.service) ? p.service : p.port) == h.port))`,
		func(s AppSpec) bool {
			return every(s.publicPorts(), func(h IngressPort) bool {
				return slices.ContainsFunc(s.Ports, func(p Port) bool { return p.tcp() == h.TCP() && p.ServicePort() == h.Port })
			})
		},
	},
	{
		"ingress.ports", "a port is there twice",
		noPorts + `self.ingress.ports.all(h, self.ingress.ports.exists_one(o, o.port == h.port && o.protocol == h.protocol)) && ` +
			`self.ingress.ports.all(h, !has(h.publicPort) || self.ingress.ports.exists_one(o, has(o.publicPort) && o.publicPort == h.publicPort && o.protocol == h.protocol))`,
		func(s AppSpec) bool {
			var named []IngressPort
			for _, p := range s.publicPorts() {
				if p.PublicPort != 0 {
					named = append(named, p)
				}
			}
			return distinct(s.publicPorts(), func(p IngressPort) string { return fmt.Sprint(p.TCP(), p.Port) }) &&
				distinct(named, func(p IngressPort) string { return fmt.Sprint(p.TCP(), p.PublicPort) })
		},
	},
	{
		"ingress.ports", "there is no proxyProtocol with UDP",
		noPorts + `self.ingress.ports.all(p, p.protocol == 'TCP' || !has(p.proxyProtocol) || !p.proxyProtocol)`,
		func(s AppSpec) bool {
			return every(s.publicPorts(), func(p IngressPort) bool { return p.TCP() || !p.ProxyProtocol })
		},
	},
	{
		"ingress.ports", "an entry of allowFrom is neither an IP address nor a network in CIDR form",
		noPorts + `self.ingress.ports.all(p, !has(p.allowFrom) || p.allowFrom.all(a, isIP(a) || isCIDR(a)))`,
		func(s AppSpec) bool {
			return every(s.publicPorts(), func(p IngressPort) bool { return every(p.AllowFrom, isNetwork) })
		},
	},
	{
		"ingress.hosts", "a port is none of the App's TCP ports",
		`!has(self.ingress) || !has(self.ingress.hosts) || self.ingress.hosts.all(h, !has(h.port) || has(self.ports) && ` +
			`self.ports.exists(p, p.protocol == 'TCP' && (has(p.service) ? p.service : p.port) == h.port))`,
		func(s AppSpec) bool {
			return s.Ingress == nil || !slices.ContainsFunc(s.Ingress.Hosts, func(h IngressHost) bool {
				return h.Port != 0 && !slices.ContainsFunc(s.Ports, func(p Port) bool { return p.tcp() && p.ServicePort() == h.Port })
			})
		},
	},
	{
		"ingress.hosts", "a host and path is there twice",
		`!has(self.ingress) || !has(self.ingress.hosts) || self.ingress.hosts.all(h, self.ingress.hosts.exists_one(o, o.host == h.host && o.path == h.path))`,
		func(s AppSpec) bool {
			return s.Ingress == nil || distinct(s.Ingress.Hosts, func(h IngressHost) string { return h.Host + h.prefix() })
		},
	},
	{
		"ingress.hosts", "a host with passthrough has no path, no tlsSecret and no second entry: the gateway sees its connections' server name alone",
		noHosts + `self.ingress.hosts.all(h, !has(h.passthrough) || !h.passthrough || (!has(h.path) || h.path == '/') && !has(h.tlsSecret) && ` +
			`self.ingress.hosts.exists_one(o, o.host == h.host))`,
		func(s AppSpec) bool { return s.Ingress == nil || every(s.Ingress.Hosts, s.Ingress.passesAlone) },
	},
	{
		"ingress.visitors", "a host with passthrough can ask for neither a sign-in nor a password, and knows no bodies: " +
			"leave out signIn, basicAuthSecret, serviceTokensSecret and maxBodyBytes, and use allowFrom",
		noVisitors + `!has(self.ingress.hosts) || !self.ingress.hosts.exists(h, has(h.passthrough) && h.passthrough) || ` +
			`!has(self.ingress.visitors.signIn) && !has(self.ingress.visitors.basicAuthSecret) && ` +
			`!has(self.ingress.visitors.serviceTokensSecret) && !has(self.ingress.visitors.maxBodyBytes)`,
		func(s AppSpec) bool {
			v := s.visitors()
			return v == nil || !s.Ingress.passes() || v.SignIn == nil && v.BasicAuthSecret == "" && v.ServiceTokensSecret == "" && v.MaxBodyBytes == 0
		},
	},
	{
		"ingress.visitors", "give allowFrom, basicAuthSecret, signIn, serviceTokensSecret, requestsPerSecond or maxBodyBytes",
		noVisitors + `[has(self.ingress.visitors.allowFrom) && size(self.ingress.visitors.allowFrom) > 0, has(self.ingress.visitors.basicAuthSecret), ` +
			`has(self.ingress.visitors.signIn), has(self.ingress.visitors.serviceTokensSecret), has(self.ingress.visitors.requestsPerSecond), has(self.ingress.visitors.maxBodyBytes)].exists(x, x)`,
		func(s AppSpec) bool { return s.visitors() == nil || !s.visitors().empty() },
	},
	{
		"ingress.visitors.allowFrom", "an entry is neither an IP address nor a network in CIDR form",
		noVisitors + `!has(self.ingress.visitors.allowFrom) || self.ingress.visitors.allowFrom.all(a, isIP(a) || isCIDR(a))`,
		func(s AppSpec) bool {
			return s.visitors() == nil || every(s.visitors().AllowFrom, isNetwork)
		},
	},
	{
		"ingress.visitors.basicAuthSecret", "signIn and serviceTokensSecret are other ways to sign in: leave out basicAuthSecret, or both of them",
		noVisitors + `!has(self.ingress.visitors.basicAuthSecret) || !has(self.ingress.visitors.signIn) && !has(self.ingress.visitors.serviceTokensSecret)`,
		func(s AppSpec) bool {
			return s.visitors() == nil || s.visitors().BasicAuthSecret == "" || s.signIn() == nil && s.visitors().ServiceTokensSecret == ""
		},
	},
	{
		"ingress.visitors.signIn", "give emails or groups: who of those that sign in is let in",
		noSignIn + `has(self.ingress.visitors.signIn.emails) && size(self.ingress.visitors.signIn.emails) > 0 || ` +
			`has(self.ingress.visitors.signIn.groups) && size(self.ingress.visitors.signIn.groups) > 0`,
		func(s AppSpec) bool { return s.signIn() == nil || len(s.signIn().Emails)+len(s.signIn().Groups) > 0 },
	},
	{
		"ingress.visitors.signIn.emails", "an entry is neither an address, nor *@ with a domain, nor *",
		noSignIn + `!has(self.ingress.visitors.signIn.emails) || self.ingress.visitors.signIn.emails.all(e, e.matches('` + emailPattern + `'))`,
		func(s AppSpec) bool { return s.signIn() == nil || every(s.signIn().Emails, emailRegexp.MatchString) },
	},
	{
		"ingress.visitors.signIn.groups", "an entry is empty, or has a comma or a control character",
		noSignIn + `!has(self.ingress.visitors.signIn.groups) || self.ingress.visitors.signIn.groups.all(g, g.matches('` + groupPattern + `'))`,
		func(s AppSpec) bool { return s.signIn() == nil || every(s.signIn().Groups, groupRegexp.MatchString) },
	},
	{
		"ingress.visitors", "the gateway alone serves an App with visitors: leave out class and tlsSecret",
		noVisitors + `!has(self.ingress.class) && (!has(self.ingress.hosts) || self.ingress.hosts.all(h, !has(h.tlsSecret)))`,
		func(s AppSpec) bool {
			return s.visitors() == nil || s.Ingress.Class == "" && every(s.Ingress.Hosts, func(h IngressHost) bool { return h.TLSSecret == "" })
		},
	},
}

func isNetwork(text string) bool { _, err := limit.ParseNetwork(text); return err == nil }

// passesAlone reports whether a host with passthrough says nothing that needs HTTP, and is there
// once.
func (i *Ingress) passesAlone(h IngressHost) bool {
	others := slices.DeleteFunc(slices.Clone(i.Hosts), func(o IngressHost) bool { return o.Host != h.Host })
	return !h.Passthrough || h.prefix() == "/" && h.TLSSecret == "" && len(others) == 1
}

const noHosts = `!has(self.ingress) || !has(self.ingress.hosts) || `

const noPorts = `!has(self.ingress) || !has(self.ingress.ports) || `

const (
	noVisitors = `!has(self.ingress) || !has(self.ingress.visitors) || `
	noSignIn   = noVisitors + `!has(self.ingress.visitors.signIn) || `
	// Emails and groups of visitors, which become headers with commas between.
	emailPattern = `^([*]|([*]|[^@*,[:space:][:cntrl:]]+)@[^@*,[:space:][:cntrl:]]+)$`
	groupPattern = `^[^,[:cntrl:]]+$`
)

var emailRegexp, groupRegexp = regexp.MustCompile(emailPattern), regexp.MustCompile(groupPattern)
