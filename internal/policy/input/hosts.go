package input

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// everyHost stands for all hosts that no other rule has: a backend without a host.
const everyHost = "*"

// hostFields are the fields in which kinds that route outside traffic name hosts. [] is each item
// of a list. After a "?", absence means every host; after "match:", the value is a rule of
// Traefik's; after "any:", a value stands for every host, because it can name some in ways that are
// not read here.
var hostFields = map[string][]string{
	"Ingress.networking.k8s.io":           {"spec.rules[].?host", "spec.tls[].hosts[]"},
	"HTTPRoute.gateway.networking.k8s.io": {"spec.?hostnames[]"},
	"GRPCRoute.gateway.networking.k8s.io": {"spec.?hostnames[]"},
	"TLSRoute.gateway.networking.k8s.io":  {"spec.?hostnames[]"},
	"Gateway.gateway.networking.k8s.io":   {"spec.listeners[].?hostname", "spec.any:addresses"},
	"Route.route.openshift.io":            {"spec.host", "spec.any:wildcardPolicy"},
	"VirtualServer.k8s.nginx.org":         {"spec.?host", "spec.tls.cert-manager.common-name"},
	"VirtualServerRoute.k8s.nginx.org":    {"spec.?host"},
	"TransportServer.k8s.nginx.org":       {"spec.?host"},
	"HTTPProxy.projectcontour.io":         {"spec.virtualhost.fqdn"},
	"VirtualService.networking.istio.io":  {"spec.?hosts[]"},
	"Gateway.networking.istio.io":         {"spec.servers[].?hosts[]"},
	"IngressRoute.traefik.io":             {"spec.routes[].match:match", "spec.tls.domains[].main", "spec.tls.domains[].sans[]"},
	"IngressRouteTCP.traefik.io":          {"spec.routes[].match:match", "spec.tls.domains[].main", "spec.tls.domains[].sans[]"},
	"Certificate.cert-manager.io":         {"spec.commonName", "spec.dnsNames[]", "spec.ipAddresses[]", "spec.any:literalSubject", "spec.any:uris", "spec.any:otherNames"},
	"DNSEndpoint.externaldns.k8s.io":      {"spec.endpoints[].dnsName"},
	"Service":                             {"spec.loadBalancerIP"},
}

// renamed are API groups of which a controller serves the same kinds as of another.
var renamed = map[string]string{"extensions": "networking.k8s.io", "traefik.containo.us": "traefik.io"}

// hosts returns the hosts that an object would serve, or create names or certificates for.
func hosts(kind string, object map[string]any) (all []runnerapi.NameIntent) {
	for _, path := range hostFields[kind] {
		all = append(all, find("", object, strings.Split(path, "."))...)
	}
	if strings.HasPrefix(kind, "Ingress.") {
		spec, _ := object["spec"].(map[string]any)
		for _, field := range []string{"defaultBackend", "backend"} {
			if spec[field] != nil {
				all = append(all, runnerapi.NameIntent{Field: "spec." + field, Name: everyHost})
			}
		}
	}
	return all
}

// find follows a path to the names at its end.
func find(at string, v any, path []string) (all []runnerapi.NameIntent) {
	if len(path) == 0 {
		return leaf(at, v)
	}
	object, ok := v.(map[string]any)
	if !ok {
		return nil
	}
	key, list := strings.CutSuffix(path[0], "[]")
	key, needed := strings.CutPrefix(key, "?")
	key, match := strings.CutPrefix(key, "match:")
	key, opaque := strings.CutPrefix(key, "any:")
	field := strings.TrimPrefix(at+"."+key, ".")
	below := object[key]
	items, isList := below.([]any)
	switch {
	case match:
		return matched(field, below)
	case opaque && !empty(below), needed && empty(below), list && below != nil && !isList:
		return []runnerapi.NameIntent{{Field: field, Name: everyHost}}
	case list:
		for n := range items {
			all = append(all, find(fmt.Sprintf("%s[%d]", field, n), items[n], path[1:])...)
		}
		return all
	case below == nil:
		return nil
	}
	return find(field, below, path[1:])
}

// empty reports whether a field is absent, or means no more than that.
func empty(v any) bool {
	items, list := v.([]any)
	return v == nil || v == "" || v == "None" || list && len(items) == 0
}

// leaf returns a name. Istio's may contain the namespace that it is for.
func leaf(at string, v any) []runnerapi.NameIntent {
	name, ok := v.(string)
	if !ok || name == "" {
		return nil
	}
	if _, host, found := strings.Cut(name, "/"); found {
		name = host
	}
	return []runnerapi.NameIntent{{Field: at, Name: strings.ToLower(strings.TrimSuffix(name, "."))}}
}

// matched returns the hosts of a rule of Traefik's. A rule that may match others stands for every
// host. Traefik reads its rules as expressions of Go too (github.com/vulcand/predicate), in any
// version of their syntax.
func matched(field string, v any) (all []runnerapi.NameIntent) {
	rule, _ := v.(string)
	if parsed, err := parser.ParseExpr(rule); err == nil {
		for _, name := range ruleHosts(parsed) {
			all = append(all, leaf(field, name)...)
		}
	}
	if len(all) == 0 {
		all = []runnerapi.NameIntent{{Field: field, Name: everyHost}}
	}
	return all
}

// ruleHosts returns the only hosts for which an expression may hold; nil if it may hold for any.
func ruleHosts(e ast.Expr) []string {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return ruleHosts(e.X)
	case *ast.BinaryExpr:
		x, y := ruleHosts(e.X), ruleHosts(e.Y)
		if e.Op == token.LAND || e.Op == token.LOR && x != nil && y != nil {
			return append(x, y...)
		}
	case *ast.CallExpr:
		if matcher, ok := e.Fun.(*ast.Ident); ok && hostMatchers[strings.ToLower(matcher.Name)] {
			return literals(e.Args)
		}
	}
	return nil
}

// hostMatchers are those of Traefik's matchers that take whole hosts, in lower case: Traefik knows
// them in several spellings.
var hostMatchers = map[string]bool{"host": true, "hostheader": true, "hostsni": true}

// literals returns the texts in an expression's arguments; nil if one is something else.
func literals(args []ast.Expr) (all []string) {
	for _, arg := range args {
		literal, ok := arg.(*ast.BasicLit)
		if !ok {
			return nil
		}
		name, err := strconv.Unquote(literal.Value)
		if err != nil || name == "" {
			return nil
		}
		all = append(all, name)
	}
	return all
}
