package main

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// ServeHTTP passes a request to a Service. As F5's does by default, it redirects requests by HTTP
// where the Ingress has a certificate for the host.
func (c *controller) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	host := hostOf(r.Host)
	in := c.owner(host)
	to := backend(in, host, r.URL.Path)
	switch {
	case to == nil:
		http.NotFound(w, r)
	case r.TLS == nil && secretOf(in, host) != "":
		http.Redirect(w, r, "https://"+host+r.URL.RequestURI(), http.StatusMovedPermanently)
	default:
		at := net.JoinHostPort(to.Name+"."+in.Namespace+".svc", strconv.Itoa(int(to.Port.Number)))
		c.passTo(at).ServeHTTP(w, r)
	}
}

func (c *controller) passTo(at string) http.Handler {
	return &httputil.ReverseProxy{Transport: c.upstream, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(&url.URL{Scheme: "http", Host: at})
		r.Out.Host = r.In.Host
		r.Out.Header["X-Forwarded-For"] = r.In.Header["X-Forwarded-For"] // to which the next line adds
		r.SetXForwarded()
	}}
}

func hostOf(authority string) string {
	if host, _, err := net.SplitHostPort(authority); err == nil {
		authority = host
	}
	return strings.ToLower(authority)
}

// owner returns the oldest Ingress with a rule for the host, or nil. F5's ignores that host in all
// others.
func (c *controller) owner(host string) *networkingv1.Ingress {
	all := slices.DeleteFunc(c.ofClass(), func(in *networkingv1.Ingress) bool { return ruleFor(in, host) == nil })
	if len(all) == 0 {
		return nil
	}
	return slices.MinFunc(all, func(a, b *networkingv1.Ingress) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), -cmp.Compare(a.UID, b.UID))
	})
}

func ruleFor(in *networkingv1.Ingress, host string) *networkingv1.HTTPIngressRuleValue {
	for _, r := range in.Spec.Rules {
		if r.Host == host {
			return r.HTTP
		}
	}
	return nil
}

// backend returns the Service of the longest path that matches. An exact path goes before a prefix.
func backend(in *networkingv1.Ingress, host, path string) *networkingv1.IngressServiceBackend {
	var found *networkingv1.IngressServiceBackend
	var longest int
	if in == nil {
		return nil
	}
	for _, p := range ruleFor(in, host).Paths {
		if exact := *p.PathType == networkingv1.PathTypeExact; exact && p.Path == path {
			return p.Backend.Service
		} else if !exact && hasPrefix(path, p.Path) && len(p.Path) > longest {
			found, longest = p.Backend.Service, len(p.Path)
		}
	}
	return found
}

// hasPrefix compares whole elements of a path: /shop is not a prefix of /shopping.
func hasPrefix(path, prefix string) bool {
	prefix = strings.TrimSuffix(prefix, "/")
	return path == prefix || strings.HasPrefix(path, prefix+"/")
}

// secretOf returns the name of the Secret with the host's certificate, or nothing.
func secretOf(in *networkingv1.Ingress, host string) string {
	for _, t := range in.Spec.TLS {
		if slices.Contains(t.Hosts, host) {
			return t.SecretName
		}
	}
	return ""
}

// certificate refuses the handshake for a host without one, as F5's does.
func (c *controller) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	host := hostOf(hello.ServerName)
	in := c.owner(host)
	if in == nil || secretOf(in, host) == "" {
		return nil, fmt.Errorf("no certificate for %q", host)
	}
	secret, err := c.secrets.Secrets(in.Namespace).Get(secretOf(in, host))
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	return &pair, err
}
