package input

import (
	"fmt"
	"maps"
	"slices"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// What a policy calls the fields by which pods choose their nodes and their priority.
const (
	nodeLabel     = "nodeSelector/"
	tainted       = "toleration/"
	priorityClass = "priorityClass/"
	node          = "node/"
	every         = "*" // of a toleration without a key
)

// placementOf returns how an App's pods choose their nodes and their priority.
func placementOf(s runnerapi.AppSpec) (all []runnerapi.NameIntent) {
	for _, key := range slices.Sorted(maps.Keys(s.NodeSelector)) {
		all = append(all, runnerapi.NameIntent{Field: "nodeSelector." + key, Name: nodeLabel + key})
	}
	for n, t := range s.Tolerations {
		all = append(all, toleration(fmt.Sprintf("tolerations[%d]", n), t.Key))
	}
	if s.PriorityClass != "" {
		all = append(all, runnerapi.NameIntent{Field: "priorityClassName", Name: priorityClass + s.PriorityClass})
	}
	return all
}

func toleration(field, key string) runnerapi.NameIntent {
	if key == "" {
		key = every
	}
	return runnerapi.NameIntent{Field: field, Name: tainted + key}
}

// placement gathers the same of a field of any object.
func (w *walk) placement(field, key string, v any) {
	add := func(at, name string) {
		w.in.Placement = append(w.in.Placement, runnerapi.NameIntent{Field: at, Name: name})
	}
	switch v := v.(type) {
	case string:
		switch {
		case v == "":
		case key == "priorityClassName":
			add(field, priorityClass+v)
		case key == "nodeName":
			add(field, node+v)
		}
	case map[string]any:
		switch key {
		case "nodeSelector":
			for _, label := range slices.Sorted(maps.Keys(v)) {
				add(field+"."+label, nodeLabel+label)
			}
		case "preference": // of a node affinity
			w.nodeTerm(field, v)
		}
	case []any:
		for n := range v {
			item, _ := v[n].(map[string]any)
			at := fmt.Sprintf("%s[%d]", field, n)
			of, _ := item["key"].(string)
			switch key {
			case "tolerations":
				w.in.Placement = append(w.in.Placement, toleration(at, of))
			case "nodeSelectorTerms":
				w.nodeTerm(at, item)
			}
		}
	}
}

// nodeTerm gathers the labels and fields of nodes that a term of a node affinity names.
func (w *walk) nodeTerm(field string, term map[string]any) {
	for _, part := range []string{"matchExpressions", "matchFields"} {
		list, _ := term[part].([]any)
		for n := range list {
			item, _ := list[n].(map[string]any)
			key, _ := item["key"].(string)
			w.in.Placement = append(w.in.Placement, runnerapi.NameIntent{Field: fmt.Sprintf("%s.%s[%d]", field, part, n), Name: nodeLabel + key})
		}
	}
}
