package input

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// What a policy calls the fields by which pods choose their nodes and their priority.
const (
	nodeLabel     = "nodeSelector/"
	tolerated     = "toleration/"
	priorityClass = "priorityClass/"
	nodeName      = "node/"
	runtimeClass  = "runtimeClass/" // which can bring a nodeSelector and tolerations
	scheduler     = "scheduler/"
	device        = "device/" // an extended resource, which only some nodes have
	anyTaint      = "*"       // of a toleration without a key
)

// everyNode are labels that each node has, so that spreading over them chooses none.
var everyNode = []string{corev1.LabelHostname, corev1.LabelTopologyZone, corev1.LabelTopologyRegion}

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
	all = append(all, devices("resources", s.Resources)...)
	for n, c := range s.InitContainers {
		all = append(all, devices(fmt.Sprintf("initContainers[%d].resources", n), c.Resources)...)
	}
	for n, j := range s.Jobs {
		all = append(all, devices(fmt.Sprintf("jobs[%d].resources", n), j.Resources)...)
	}
	if s.Spread != nil && s.Spread.When != "Never" {
		for n, key := range s.Spread.Over {
			if !slices.Contains(everyNode, key) {
				all = append(all, runnerapi.NameIntent{Field: fmt.Sprintf("spread.over[%d]", n), Name: nodeLabel + key})
			}
		}
	}
	return all
}

func devices(field string, r runnerapi.Resources) (all []runnerapi.NameIntent) {
	for _, name := range slices.Sorted(maps.Keys(r.Devices)) {
		all = append(all, runnerapi.NameIntent{Field: field + ".devices." + name, Name: device + name})
	}
	return all
}

func toleration(field, key string) runnerapi.NameIntent {
	if key == "" {
		key = anyTaint
	}
	return runnerapi.NameIntent{Field: field, Name: tolerated + key}
}

// placement gathers the same of a field of any object.
func (w *walk) placement(field, key string, v any) {
	switch key {
	case "priorityClassName":
		w.place(field, priorityClass, v)
	case "nodeName":
		w.place(field, nodeName, v)
	case "runtimeClassName":
		w.place(field, runtimeClass, v)
	case "schedulerName":
		if v != corev1.DefaultSchedulerName {
			w.place(field, scheduler, v)
		}
	case "topologyKey":
		if label, ok := v.(string); ok && (!slices.Contains(everyNode, label) || strings.Contains(field, ".podAffinity.")) { // beside pods of any namespace
			w.place(field, nodeLabel, label)
		}
	case "nodeSelector":
		labels, _ := v.(map[string]any)
		for _, label := range slices.Sorted(maps.Keys(labels)) {
			w.place(field+"."+label, nodeLabel, label)
		}
	case "requests", "limits": // of a container
		amounts, _ := v.(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(amounts)) {
			if runnerapi.ExtendedResource(name) {
				w.place(field+"."+name, device, name)
			}
		}
	case "tolerations":
		for at, item := range items(field, v) {
			key, _ := item["key"].(string)
			w.in.Placement = append(w.in.Placement, toleration(at, key))
		}
	case "nodeSelectorTerms": // of a node affinity
		for at, term := range items(field, v) {
			w.nodeTerm(at, term)
		}
	case "preference":
		if term, ok := v.(map[string]any); ok {
			w.nodeTerm(field, term)
		}
	}
}

func (w *walk) place(field, kind string, name any) {
	if name, ok := name.(string); ok && name != "" {
		w.in.Placement = append(w.in.Placement, runnerapi.NameIntent{Field: field, Name: kind + name})
	}
}

// items yields the objects of a list, with their fields.
func items(field string, list any) iter.Seq2[string, map[string]any] {
	return func(yield func(string, map[string]any) bool) {
		all, _ := list.([]any)
		for n := range all {
			item, _ := all[n].(map[string]any)
			if !yield(fmt.Sprintf("%s[%d]", field, n), item) {
				return
			}
		}
	}
}

// nodeTerm gathers the labels and fields of nodes that a term names.
func (w *walk) nodeTerm(field string, term map[string]any) {
	for _, part := range []string{"matchExpressions", "matchFields"} {
		for at, item := range items(field+"."+part, term[part]) {
			w.place(at, nodeLabel, item["key"])
		}
	}
}
