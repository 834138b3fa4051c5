package ingress

import (
	"cmp"
	"fmt"
	"net/http"
	"net/textproto"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/pipeops/pipeops-vm-agent/internal/gateway"
	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
)

// readFilters are the filters of a rule or of a backend.
type readFilters struct {
	filters *gateway.Filters // nil for none
	mirrors []httpMirror
	types   []string
}

// filterFields are the types of filters that the gateway carries, and the field of each.
var filterFields = map[string]string{
	"RequestHeaderModifier": "requestHeaderModifier", "ResponseHeaderModifier": "responseHeaderModifier",
	"RequestRedirect": "requestRedirect", "URLRewrite": "urlRewrite", "RequestMirror": "requestMirror",
}

// filtersOf returns filters, and why they cannot be carried. Those of a backend change headers
// alone.
func filtersOf(at string, list any, namespace string, ofBackend bool) (read readFilters, reason string) {
	f := &gateway.Filters{}
	for i, filter := range objects(list) {
		at := fmt.Sprintf("%s[%d]", at, i)
		kind, _ := filter["type"].(string)
		field, carried := filterFields[kind]
		if !carried || ofBackend && !strings.HasSuffix(kind, "HeaderModifier") {
			return read, at + ".type is " + kind + ", which the gateway does not support here; remove the filter"
		}
		if reason = unknownField(at, filter, []string{"type", field}); reason != "" {
			return read, reason
		}
		value, _ := filter[field].(map[string]any)
		if reason = read.add(f, at+"."+field, kind, value, namespace); reason != "" {
			return read, reason
		}
		read.filters, read.types = f, append(read.types, kind)
	}
	if f.Redirect != nil && (f.Path != nil || f.Host != "") {
		return read, at + " has both RequestRedirect and URLRewrite; remove one of them"
	}
	return read, ""
}

func (read *readFilters) add(f *gateway.Filters, at, kind string, value map[string]any, namespace string) (reason string) {
	switch kind {
	case "RequestHeaderModifier":
		return modify(&f.Request, at, value)
	case "ResponseHeaderModifier":
		return modify(&f.Response, at, value)
	case "RequestRedirect":
		f.Redirect, reason = redirectOf(at, value)
		return reason
	case "URLRewrite":
		if reason = unknownField(at, value, []string{"hostname", "path"}); reason != "" {
			return reason
		}
		if f.Host, reason = hostOf(at, value); reason == "" {
			f.Path, reason = pathChangeOf(at+".path", value["path"])
		}
		return reason
	}
	m, reason := mirrorOf(at, value, namespace)
	read.mirrors = append(read.mirrors, m)
	return reason
}

// modify reads changes of headers. What the gateway says of its clients, and of the connection, is
// not changed.
func modify(m *gateway.Modifier, at string, value map[string]any) (reason string) {
	if reason = unknownField(at, value, []string{"set", "add", "remove"}); reason != "" {
		return reason
	}
	for _, field := range []struct {
		name string
		to   *[]gateway.Header
	}{{"set", &m.Set}, {"add", &m.Add}} {
		for i, header := range objects(value[field.name]) {
			at := fmt.Sprintf("%s.%s[%d]", at, field.name, i)
			name, _ := header["name"].(string)
			text, _ := header["value"].(string)
			if reason = cmp.Or(unknownField(at, header, []string{"name", "value"}), unchangeable(at+".name", name)); reason != "" {
				return reason
			}
			if !httpguts.ValidHeaderFieldValue(text) {
				return at + ".value is not valid in a header"
			}
			*field.to = append(*field.to, gateway.Header{Name: textproto.CanonicalMIMEHeaderKey(name), Value: text})
		}
	}
	names, _ := value["remove"].([]any)
	for i, v := range names {
		name, _ := v.(string)
		if reason = unchangeable(fmt.Sprintf("%s.remove[%d]", at, i), name); reason != "" {
			return reason
		}
		m.Remove = append(m.Remove, textproto.CanonicalMIMEHeaderKey(name))
	}
	return ""
}

// unchangeable returns a reason if a filter must not change a header.
func unchangeable(at, name string) string {
	switch {
	case !httpguts.ValidHeaderFieldName(name):
		return at + " is not valid"
	case gatewaywire.Reserved(name):
		return at + " is " + name + ", which is the gateway's own to set; remove it"
	}
	return ""
}

var redirectStatuses = []int64{
	http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect,
}

func redirectOf(at string, value map[string]any) (d *gateway.Redirect, reason string) {
	d = &gateway.Redirect{Status: http.StatusFound}
	if reason = unknownField(at, value, []string{"scheme", "hostname", "path", "port", "statusCode"}); reason != "" {
		return d, reason
	}
	if d.Scheme, _ = value["scheme"].(string); d.Scheme != "" && d.Scheme != "http" && d.Scheme != "https" {
		return d, at + ".scheme is neither http nor https"
	}
	if d.Host, reason = hostOf(at, value); reason != "" {
		return d, reason
	}
	if port, given := number(value["port"]); given {
		if d.Port = int(port); port < 1 || port > 1<<16-1 {
			return d, at + ".port is not a port"
		}
	}
	if status, given := number(value["statusCode"]); given {
		if d.Status = int(status); !slices.Contains(redirectStatuses, status) {
			return d, at + ".statusCode is not one of a redirect"
		}
	}
	d.Path, reason = pathChangeOf(at+".path", value["path"])
	return d, reason
}

func hostOf(at string, value map[string]any) (host, reason string) {
	host, _ = value["hostname"].(string)
	if host != "" && len(validation.IsDNS1123Subdomain(host)) > 0 {
		return "", at + ".hostname is not a name in DNS"
	}
	return host, ""
}

// replacement matches paths that all servers read alike: no part is encoded, empty or of dots.
var replacement = regexp.MustCompile(`^(/|(/[A-Za-z0-9_~!$&'()*+,=:@.-]+)*/?)$`)

func pathChangeOf(at string, v any) (p *gateway.PathChange, reason string) {
	value, given := v.(map[string]any)
	if !given {
		return nil, ""
	}
	kind, _ := value["type"].(string)
	field := map[string]string{"ReplaceFullPath": "replaceFullPath", "ReplacePrefixMatch": "replacePrefixMatch"}[kind]
	if field == "" {
		return nil, at + ".type is " + kind + ", which the gateway does not support; use ReplaceFullPath or ReplacePrefixMatch"
	}
	if reason = unknownField(at, value, []string{"type", field}); reason != "" {
		return nil, reason
	}
	path, _ := value[field].(string)
	if !replacement.MatchString(path) || strings.Contains(path+"/", "/./") || strings.Contains(path+"/", "/../") {
		return nil, at + "." + field + " is not a path that begins with a slash and has no encoded, empty or dot segments"
	}
	return &gateway.PathChange{Value: path, Prefix: kind == "ReplacePrefixMatch"}, ""
}

// maxFraction bounds a denominator: of so many requests a mirror can get one.
const maxFraction = 1 << 30

// mirrorOf returns a mirror, which is a Service.
func mirrorOf(at string, value map[string]any, namespace string) (m httpMirror, reason string) {
	if reason = unknownField(at, value, []string{"backendRef", "percent", "fraction"}); reason != "" {
		return m, reason
	}
	ref, _ := value["backendRef"].(map[string]any)
	at += ".backendRef"
	if reason = unknownField(at, ref, []string{"group", "kind", "name", "namespace", "port"}); reason != "" {
		return m, reason
	}
	group, _ := ref["group"].(string)
	if kind, _ := ref["kind"].(string); group != "" || kind != "" && kind != "Service" {
		return m, at + " is not a Service"
	}
	m.share, m.of = 100, 100
	if percent, given := number(value["percent"]); given {
		m.share = int(min(max(percent, 0), 100))
	}
	if fraction, given := value["fraction"].(map[string]any); given {
		share, _ := number(fraction["numerator"])
		of, given := number(fraction["denominator"])
		if !given {
			of = 100
		}
		m.share, m.of = int(min(max(share, 0), maxFraction)), int(min(max(of, 1), maxFraction))
	}
	m.to, reason = serviceOf(at, ref, namespace)
	return m, reason
}
