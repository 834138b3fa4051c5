// Package duplicates removes list entries of one key from pods. A client-side apply accepts such
// entries with a warning, as k8s.io/kubernetes/pkg/api/pod/warnings.go lists them; a server-side
// apply refuses them. The last entry wins.
package duplicates

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pipeops/pipeops-vm-agent/internal/policy/input"
)

type fields = map[string]any

// Remove changes the objects of one apply, and returns a warning for each entry that it removes.
// What names a removed port, in probes and in Services of these objects, names the one that stays.
func Remove(objects []*unstructured.Unstructured) map[*unstructured.Unstructured][]string {
	all := map[*unstructured.Unstructured][]string{}
	for _, u := range objects {
		spec, labels, at := input.PodSpec(u)
		if spec == nil {
			continue
		}
		p := pod{at: at}
		p.unique(at, spec, "imagePullSecrets", name, nil)
		p.unique(at, spec, "hostAliases", address, joinHosts)
		for _, list := range []string{"initContainers", "containers"} {
			for n, c := range entries(spec, list) {
				p.container(fmt.Sprintf("%s.%s[%d]", at, list, n), c)
			}
		}
		for _, service := range objects {
			if service.GetKind() == "Service" && together(service, u) && selects(service, labels) {
				p.retarget(service)
			}
		}
		if len(p.warnings) > 0 {
			all[u] = p.warnings
		}
	}
	return all
}

// RemoveIn is Remove for what holds objects. warn is called for each of them.
func RemoveIn[T any](holders []T, object func(T) *unstructured.Unstructured, warn func(T, []string)) {
	objects := make([]*unstructured.Unstructured, len(holders))
	for i, h := range holders {
		objects[i] = object(h)
	}
	warnings := Remove(objects)
	for i, h := range holders {
		warn(h, warnings[objects[i]])
	}
}

// pod is one pod's spec.
type pod struct {
	at       string
	warnings []string
	ports    map[string]any // numbers of the removed ports, by their names
}

func (p *pod) container(at string, c fields) {
	p.unique(at, c, "env", name, nil)
	renamed := map[string]any{}
	p.unique(at, c, "ports", number, func(removed, stays fields) {
		was, _ := removed["name"].(string)
		switch now := stays["name"]; {
		case was == "" || now == was:
		case now == nil || now == "":
			stays["name"] = was
		default:
			renamed[was] = now
			if p.ports == nil {
				p.ports = map[string]any{}
			}
			p.ports[was] = stays["containerPort"]
		}
	})
	if len(renamed) == 0 {
		return
	}
	lifecycle, _ := c["lifecycle"].(fields)
	for _, handler := range []any{c["livenessProbe"], c["readinessProbe"], c["startupProbe"], lifecycle["postStart"], lifecycle["preStop"]} {
		of, _ := handler.(fields)
		for _, kind := range []string{"httpGet", "tcpSocket"} {
			if action, ok := of[kind].(fields); ok {
				retarget(action, "port", renamed)
			}
		}
	}
}

// retarget points a Service to the numbers of removed ports.
func (p *pod) retarget(service *unstructured.Unstructured) {
	spec, _ := service.Object["spec"].(fields)
	for _, port := range entries(spec, "ports") {
		retarget(port, "targetPort", p.ports)
	}
}

func retarget(in fields, field string, to map[string]any) {
	if was, ok := in[field].(string); ok && to[was] != nil {
		in[field] = to[was]
	}
}

// unique keeps the last entry of each key. join adds to it what is kept of a removed one.
func (p *pod) unique(at string, in fields, list string, key func(fields) string, join func(removed, stays fields)) {
	items := entries(in, list)
	last := map[string]int{}
	for n, item := range items {
		if k := key(item); k != "" {
			last[k] = n
		}
	}
	var kept []any
	for n, item := range items {
		k := key(item)
		if stays := last[k]; k != "" && stays != n {
			p.warnings = append(p.warnings, fmt.Sprintf("%s.%s[%d] is left out: %s[%d] has the same key (%s)", at, list, n, list, stays, k))
			if join != nil {
				join(item, items[stays])
			}
			continue
		}
		kept = append(kept, item)
	}
	if len(kept) < len(items) {
		in[list] = kept
	}
}

// entries returns a list of objects; nil if it has anything else, which the API server refuses.
func entries(in fields, list string) []fields {
	items, _ := in[list].([]any)
	all := make([]fields, 0, len(items))
	for _, item := range items {
		entry, ok := item.(fields)
		if !ok {
			return nil
		}
		all = append(all, entry)
	}
	return all
}

func name(entry fields) string { return text(entry["name"]) }

func address(entry fields) string { return text(entry["ip"]) }

func number(entry fields) string {
	if entry["containerPort"] == nil {
		return ""
	}
	return fmt.Sprintf("%v/%s", entry["containerPort"], cmp.Or(text(entry["protocol"]), "TCP"))
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

// joinHosts keeps the names of an address: a pod's hosts file has them all.
func joinHosts(removed, stays fields) {
	before, _ := removed["hostnames"].([]any)
	after, _ := stays["hostnames"].([]any)
	stays["hostnames"] = slices.Concat(before, after)
}

// selects reports whether a Service selects pods with these labels.
func selects(service *unstructured.Unstructured, labels map[string]string) bool {
	selector, _, err := unstructured.NestedStringMap(service.Object, "spec", "selector")
	if err != nil || len(selector) == 0 {
		return false
	}
	for key := range selector {
		if labels[key] != selector[key] {
			return false
		}
	}
	return true
}

// together reports whether two objects are in one namespace. A chart's may name none.
func together(a, b *unstructured.Unstructured) bool {
	return a.GetNamespace() == "" || b.GetNamespace() == "" || a.GetNamespace() == b.GetNamespace()
}
