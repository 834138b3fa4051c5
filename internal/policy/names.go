package policy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// harmless are annotations that need no rule: in a cluster only Helm, kubectl, the API server's own
// checks and the agent's routes act upon them.
var harmless = []string{
	runnerapi.AnnotationAnswer, runnerapi.AnnotationMode,
	"helm.sh/*", "meta.helm.sh/*", "checksum/*", "kubectl.kubernetes.io/*", "app.kubernetes.io/*",
	"kubernetes.io/description", "kubernetes.io/change-cause",
	"controller-gen.kubebuilder.io/version", "api-approved.kubernetes.io",
}

// unconfining are annotations that no rule can allow, with the reason. They make a container less
// confined than its spec, which is all that admission has checked.
var unconfining = []string{
	"container.apparmor.security.beta.kubernetes.io/*", "*apparmor.security*",
	"seccomp.security.alpha.kubernetes.io/*", "container.seccomp.security.alpha.kubernetes.io/*",
	"security.alpha.kubernetes.io/*",
	"seccomp-profile.kubernetes.cri-o.io*", "io.kubernetes.cri-o.*", "*.crio.io*", // CRI-O
	"io.katacontainers.*", "dev.gvisor.*", "run.oci.*", "org.systemd.property.*", // sandboxes and OCI runtimes
	"cdi.k8s.io/*", "*.nri.io/*", "*.nri.containerd.io/*", // devices and mounts of the node
	"sidecar.istio.io/uservolume*", // volumes of any kind, of the node too
}

// snippets are annotations that no rule can allow: their text becomes a part of the configuration
// of a controller that many namespaces share.
var snippets = []string{
	"*-snippet", "*-snippets",
	"haproxy-ingress.github.io/config-*", "ingress.kubernetes.io/config-*",
	"zalando.org/skipper-*", "getambassador.io/config",
}

// like reports whether a pattern matches a text: * stands for any text. Its time grows with the
// text alone.
func like(pattern, text string) bool {
	parts := strings.Split(pattern, anything)
	first, last := parts[0], parts[len(parts)-1]
	if len(parts) == 1 {
		return pattern == text
	}
	if len(text) < len(first)+len(last) || !strings.HasPrefix(text, first) || !strings.HasSuffix(text, last) {
		return false
	}
	text = text[len(first) : len(text)-len(last)]
	for _, part := range parts[1 : len(parts)-1] { // the first place of each leaves most to the others
		_, after, found := strings.Cut(text, part)
		if !found {
			return false
		}
		text = after
	}
	return true
}

func likeAny(patterns []string, text string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return like(p, text) })
}

// Harmless reports whether no rule has to name an annotation.
func Harmless(key string) bool { return likeAny(harmless, key) }

// annotation checks the key of an annotation, of an object or of what it creates.
func (r ruling) annotation(a runnerapi.NameIntent) error {
	key := strings.ToLower(a.Name) // so that no other spelling passes
	switch {
	case likeAny(unconfining, key):
		return runnerapi.PolicyDenied("leave it out: no rule can allow it",
			"annotation %.253q makes containers less confined than their spec says", a.Name).WithField(a.Field)
	case likeAny(snippets, key):
		return runnerapi.PolicyDenied("leave it out: no rule can allow it",
			"annotation %.253q writes into the configuration of a controller that others share", a.Name).WithField(a.Field)
	case likeAny(harmless, a.Name), likeAny(r.Annotations, a.Name):
		return nil
	}
	return r.refuse(a.Field, "annotations", "allows %s, not %.253q", orNone(r.Annotations, "no annotations"), a.Name)
}

// placement checks how pods choose their nodes or their priority.
func (r ruling) placement(p runnerapi.NameIntent) error {
	if r.Placement == nil || likeAny(r.Placement, p.Name) {
		return nil
	}
	return r.refuse(p.Field, "placement", "allows %s, not %.317q", orNone(r.Placement, "no choice of nodes and priority"), p.Name)
}

// host checks a name under which something is reachable from outside. A wildcard is allowed by a
// pattern that covers all names that it stands for.
func (r ruling) host(h runnerapi.NameIntent) error {
	switch {
	case r.Public != nil && !*r.Public:
		return r.refuse(h.Field, "public", "allows nothing that is reached from outside, so not %s", spoken(h.Name))
	case r.Hosts == nil && strings.Contains(h.Name, anything):
		return r.refuse(h.Field, "hosts", "names no hosts, so it allows single ones and not %s", spoken(h.Name))
	case r.Hosts == nil || likeAny(r.Hosts, h.Name):
		return nil
	}
	return r.refuse(h.Field, "hosts", "allows the hosts %s, not %s", orNone(r.Hosts, "(none)"), spoken(h.Name))
}

// visitors checks that what is reached from outside does not let in everyone. An ingress controller
// may ignore what an object says about that; the agent does not.
func (r ruling) visitors(o runnerapi.ObjectIntent) error {
	var at runnerapi.NameIntent
	switch {
	case r.Visitors == "" || r.Visitors == required && o.Protected || o.SignedIn:
		return nil
	case o.Public != "":
		at = runnerapi.NameIntent{Field: o.Public, Name: "the App's host below the gateway's domain"}
	case len(o.Hosts) > 0:
		at = runnerapi.NameIntent{Field: o.Hosts[0].Field, Name: spoken(o.Hosts[0].Name)}
	case len(o.Ports) > 0:
		at = runnerapi.NameIntent{Field: o.Ports[0].Field, Name: portText(o.Ports[0])}
	case len(o.Outside) > 0:
		at = o.Outside[0]
	default:
		return nil
	}
	if r.Visitors == signIn {
		return r.refuse(at.Field, "visitors", "lets nothing be reached from outside but Apps whose ingress.visitors has signIn (where it names a secret, not for the email *), so not %.253s", at.Name)
	}
	return r.refuse(at.Field, "visitors", "lets nothing be reached from outside but Apps whose ingress.visitors has allowFrom (no wider than /8, or /16 of IPv6), basicAuthSecret, signIn (where it names a secret, not for the email *) or serviceTokensSecret, so not %.253s", at.Name)
}

// outside checks a way by which something is reached from outside without a host.
func (r ruling) outside(way runnerapi.NameIntent) error {
	switch {
	case r.Public != nil && !*r.Public:
		return r.refuse(way.Field, "public", "allows nothing that is reached from outside, so not %.253s", way.Name)
	case r.Hosts == nil || likeAny(r.Hosts, anything):
		return nil
	}
	return r.refuse(way.Field, "hosts", "allows the hosts %s, and the agent cannot check which hosts lead to %.253s", orNone(r.Hosts, "(none)"), way.Name)
}

// spoken returns a host for display.
func spoken(host string) string {
	if host == anything {
		return "every host that no other agent has"
	}
	return fmt.Sprintf("%.253s", host)
}

var (
	annotationPattern = regexp.MustCompile(`^[A-Za-z0-9*]([A-Za-z0-9*._/-]{0,315}[A-Za-z0-9*])?$`)
	placementPattern  = regexp.MustCompile(`^[A-Za-z0-9*][A-Za-z0-9*._/-]{0,330}$`)
	hostPattern       = regexp.MustCompile(`^[a-z0-9*]([a-z0-9*.-]{0,251}[a-z0-9*])?$`)
)

// maxStars bounds the wildcards of one pattern, which cost time.
const maxStars = 4

// hosts checks the patterns of hosts.
func (c *checking) hosts(field string, patterns []string) {
	for i, p := range patterns {
		if !hostPattern.MatchString(p) || strings.Count(p, anything) > maxStars {
			c.add(fmt.Sprintf("%s[%d]", field, i), "%.100q is neither a host nor a pattern such as *.shop.example.com", p)
		}
	}
}

// names checks the patterns of hosts, placement and annotations.
func (c *checking) names(at string, r Rule) {
	c.hosts(at+".hosts", r.Hosts)
	for i, p := range r.Placement {
		if !placementPattern.MatchString(p) || strings.Count(p, anything) > maxStars {
			c.add(fmt.Sprintf("%s.placement[%d]", at, i), "%.100q is not a pattern such as nodeSelector/example.com/* or toleration/gpu", p)
		}
	}
	for i, p := range r.Annotations {
		field := fmt.Sprintf("%s.annotations[%d]", at, i)
		key := strings.ToLower(p)
		switch {
		case !annotationPattern.MatchString(p) || strings.Count(p, anything) > maxStars:
			c.add(field, "%.100q is neither an annotation's key nor a pattern such as example.com/*", p)
		case !strings.Contains(p, anything) && (likeAny(unconfining, key) || likeAny(snippets, key)):
			c.add(field, "no rule can allow %.253q: docs/reference/policy.md explains why", p)
		}
	}
}
