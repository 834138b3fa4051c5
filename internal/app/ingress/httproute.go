package ingress

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pipeops/pipeops-vm-agent/internal/printable"
)

// httpMatch is a path of an HTTPRoute, and the Service behind it.
type httpMatch struct {
	path, pathType string
	to             backendRef
}

type backendRef struct {
	namespace, name string
	port            int32
}

// The fields of an HTTPRoute that the gateway can carry. Any other one keeps the whole object from
// being served: without it, requests would go where its author does not expect them.
var (
	carriedSpec    = []string{"parentRefs", "hostnames", "rules"}
	carriedRule    = []string{"name", "matches", "backendRefs"}
	carriedMatch   = []string{"path"}
	carriedBackend = []string{"group", "kind", "name", "namespace", "port", "weight"}
)

// Uncarried returns why the gateway does not serve an HTTPRoute; empty if it does.
func Uncarried(route *unstructured.Unstructured) string {
	_, reason := matchesOf(route)
	return reason
}

// matchesOf returns what an HTTPRoute leads to. With a reason it is not served, and its matches
// have no more than their paths.
func matchesOf(route *unstructured.Unstructured) (matches []httpMatch, reason string) {
	spec := specOf(route)
	reason = unknownField("spec", spec, carriedSpec)
	if len(hostnamesOf(route)) == 0 {
		reason = cmp.Or(reason, "spec.hostnames is empty; name the hosts")
	}
	for i, rule := range objects(spec["rules"]) {
		at := fmt.Sprintf("spec.rules[%d]", i)
		to, why := backendOf(at, rule, route.GetNamespace())
		reason = cmp.Or(reason, unknownField(at, rule, carriedRule), why)
		for n, match := range orAny(objects(rule["matches"])) {
			m, why := matchOf(fmt.Sprintf("%s.matches[%d]", at, n), match)
			reason = cmp.Or(reason, why)
			m.to = to
			matches = append(matches, m)
		}
	}
	if len(matches) == 0 {
		m, _ := matchOf("", nil)
		matches, reason = []httpMatch{m}, cmp.Or(reason, "spec.rules is empty; add a rule with a backend")
	}
	if reason != "" {
		reason = printable.Shorten("HTTPRoute "+route.GetName()+" is not served: "+reason, maxReason)
	}
	return matches, reason
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

// matchOf returns a match with a path, and why it cannot be carried. Its path is then the root, so
// that no other route serves what the match is for.
func matchOf(at string, match map[string]any) (m httpMatch, reason string) {
	m = httpMatch{path: "/", pathType: string(networkingv1.PathTypePrefix)}
	if reason = unknownField(at, match, carriedMatch); reason != "" {
		return m, reason
	}
	path, _ := match["path"].(map[string]any)
	kind, _ := path["type"].(string)
	value, _ := path["value"].(string)
	switch kind {
	case "", "PathPrefix":
	case "Exact":
		m.pathType = string(networkingv1.PathTypeExact)
	default:
		return m, at + ".path.type is " + kind + ", which the gateway does not support; use Exact or PathPrefix"
	}
	if m.path = cmp.Or(value, "/"); !strings.HasPrefix(m.path, "/") {
		m.path = "/"
		return m, at + ".path.value does not begin with a slash"
	}
	return m, ""
}

// backendOf returns the only backend of a rule, and why there is none.
func backendOf(at string, rule map[string]any, namespace string) (to backendRef, reason string) {
	refs := objects(rule["backendRefs"])
	if len(refs) != 1 {
		return to, fmt.Sprintf("%s.backendRefs has %d backends; the gateway needs one", at, len(refs))
	}
	ref := refs[0]
	at += ".backendRefs[0]"
	if reason = unknownField(at, ref, carriedBackend); reason != "" {
		return to, reason
	}
	group, _ := ref["group"].(string)
	kind, _ := ref["kind"].(string)
	if group != "" || kind != "" && kind != "Service" {
		return to, at + " is not a Service"
	}
	if weight, given := number(ref["weight"]); given && weight == 0 {
		return to, at + ".weight is 0"
	}
	port, _ := number(ref["port"])
	to.name, _ = ref["name"].(string)
	to.namespace, _ = ref["namespace"].(string)
	to.namespace, to.port = cmp.Or(to.namespace, namespace), int32(min(max(port, 0), 1<<16))
	if to.port == 0 || to.port == 1<<16 {
		return to, at + ".port is missing"
	}
	return to, ""
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
