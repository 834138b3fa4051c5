package ingress

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pipeops/pipeops-vm-agent/internal/printable"
)

type backendRef struct {
	namespace, name string
	port            int32
}

// The fields of an HTTPRoute that the gateway can carry. Any other one keeps the whole object from
// being served: without it, requests would go where its author does not expect them.
var (
	carriedSpec    = []string{"parentRefs", "hostnames", "rules"}
	carriedRule    = []string{"name", "matches", "filters", "backendRefs", "timeouts"}
	carriedMatch   = []string{"path", "headers", "queryParams", "method"}
	carriedValue   = []string{"type", "name", "value"}
	carriedBackend = []string{"group", "kind", "name", "namespace", "port", "weight", "filters"}
)

// Uncarried returns why the gateway does not serve an HTTPRoute; empty if it does.
func Uncarried(route *unstructured.Unstructured) string {
	_, reason := matchesOf(route, compilePattern)
	return reason
}

// matchesOf returns what an HTTPRoute leads to. With a reason it is not served, and its matches
// have what could be read of them.
func matchesOf(route *unstructured.Unstructured, compile func(string) (*regexp.Regexp, error)) (matches []httpMatch, reason string) {
	spec, d := specOf(route), &reader{compile: compile}
	reason = unknownField("spec", spec, carriedSpec)
	if len(hostnamesOf(route)) == 0 && len(objects(spec["parentRefs"])) == 0 {
		reason = cmp.Or(reason, "spec.hostnames is empty; name the hosts")
	}
	for i, rule := range objects(spec["rules"]) {
		at := fmt.Sprintf("spec.rules[%d]", i)
		to, why := ruleOf(at, rule, route.GetNamespace())
		reason = cmp.Or(reason, why)
		for n, match := range orAny(objects(rule["matches"])) {
			if len(matches) == maxMatches {
				return closed(route, fmt.Sprintf("it has more matches than the %d that the gateway takes", maxMatches))
			}
			m, why := d.match(fmt.Sprintf("%s.matches[%d]", at, n), match)
			reason = cmp.Or(reason, why, m.fits(at, to))
			m.rule = to
			matches = append(matches, m)
		}
	}
	if len(matches) == 0 {
		return closed(route, cmp.Or(reason, "spec.rules is empty; add a rule with a backend"))
	}
	return matches, notServedFor(route, reason)
}

// closed returns a match for all requests of the hosts of an HTTPRoute that is not served.
func closed(route *unstructured.Unstructured, reason string) ([]httpMatch, string) {
	return []httpMatch{{path: "/", pathType: string(networkingv1.PathTypePrefix), rule: &httpRule{}}}, notServedFor(route, reason)
}

func notServedFor(route *unstructured.Unstructured, reason string) string {
	if reason == "" {
		return ""
	}
	return printable.Shorten("HTTPRoute "+route.GetName()+" is not served: "+reason, maxReason)
}

// maxReason is less than the control plane accepts.
const maxReason = 500

// orAny returns a match for every path if there are none, as the Gateway API does.
func orAny(matches []map[string]any) []map[string]any {
	if len(matches) == 0 {
		return []map[string]any{nil}
	}
	return matches
}

func specOf(o *unstructured.Unstructured) map[string]any {
	spec, _ := o.Object["spec"].(map[string]any)
	return spec
}

func hostnamesOf(route *unstructured.Unstructured) []string {
	hosts, _, _ := unstructured.NestedStringSlice(route.Object, "spec", "hostnames")
	return hosts
}

// unknownField returns a reason if an object has a field that is not carried.
func unknownField(at string, object map[string]any, carried []string) string {
	for _, name := range slices.Sorted(maps.Keys(object)) {
		if !slices.Contains(carried, name) && !isEmpty(object[name]) {
			return at + "." + name + " is not supported by the gateway; remove it"
		}
	}
	return ""
}

func isEmpty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}

// objects returns a list of objects. The cluster has checked that it is one.
func objects(v any) (all []map[string]any) {
	list, _ := v.([]any)
	for _, item := range list {
		object, _ := item.(map[string]any)
		all = append(all, object)
	}
	return all
}

func number(v any) (n int64, given bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case float64:
		return int64(v), true
	}
	return 0, false
}

// granted reports whether a ReferenceGrant lets HTTPRoutes of a namespace lead to a Service.
func granted(grants []unstructured.Unstructured, from string, to backendRef) bool {
	return slices.ContainsFunc(grants, func(g unstructured.Unstructured) bool {
		spec := specOf(&g)
		return g.GetNamespace() == to.namespace && g.GetDeletionTimestamp().IsZero() &&
			slices.ContainsFunc(objects(spec["from"]), func(f map[string]any) bool {
				return f["group"] == "gateway.networking.k8s.io" && f["kind"] == "HTTPRoute" && f["namespace"] == from
			}) &&
			slices.ContainsFunc(objects(spec["to"]), func(t map[string]any) bool {
				name, _ := t["name"].(string)
				return (t["group"] == nil || t["group"] == "") && t["kind"] == "Service" && (name == "" || name == to.name)
			})
	})
}
