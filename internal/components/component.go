package components

import (
	"slices"
	"strings"
)

// Namespaces of the components.
const (
	namespaceSystem     = "pipeops"
	namespaceMonitoring = "monitoring"
	namespaceIstio      = "istio-system"
)

// Namespaces are ensured before anything is installed, in addition to those of the components.
var Namespaces = []string{namespaceSystem, "production", "beta", namespaceMonitoring}

// Chart is what upstream publishes, at the version that was tested. The digests of the charts'
// files are in digests.yaml. A chart without a repository comes with this program.
type Chart struct {
	Repository string `json:"repository,omitempty"`
	Name       string `json:"name"`
	Version    string `json:"version"`
}

// String returns NAME-VERSION: the key of digests.yaml, and the name of the archive without .tgz.
func (c Chart) String() string { return c.Name + "-" + c.Version }

// Component is something that a cluster may lack.
type Component struct {
	Name      string
	What      string // it provides, for people
	Namespace string
	Charts    []Chart // installed in this order; each is a release of the chart's name
	// Monitoring is left out on a machine with little memory.
	Monitoring bool
	// Asked components are installed only if they are asked for by name.
	Asked bool
	// present reports what already provides the same, if anything does.
	present func(Cluster) string
}

// All returns all components, in the order in which they are installed.
func All() []Component { return slices.Clone(table) }

// Names returns the names of all components, in the order in which they are installed.
func Names() []string {
	names := make([]string, 0, len(table))
	for _, c := range table {
		names = append(names, c.Name)
	}
	return names
}

func find(name string) (Component, bool) {
	i := slices.IndexFunc(table, func(c Component) bool { return c.Name == name })
	if i < 0 {
		return Component{}, false
	}
	return table[i], true
}

// Known reports whether there is a component of that name.
func Known(name string) bool {
	_, known := find(name)
	return known
}

// Set is the name of a choice of components.
type Set string

// The sets. Full has everything that need not be asked for by name.
const (
	SetNone    Set = "none"
	SetMinimal Set = "minimal"
	SetDefault Set = "default"
	SetFull    Set = "full"
)

var sets = map[Set][]string{
	SetNone:    {},
	SetMinimal: {"metrics-server", "ingress"},
	SetDefault: {"metrics-server", "ingress", "cert-manager", "vpa", "prometheus", "loki", "grafana", "storage"},
}

// Chosen returns the names in a set, or in a list of names that commas separate.
func Chosen(text string) ([]string, error) {
	if Set(text) == SetFull {
		var names []string
		for _, c := range table {
			if !c.Asked {
				names = append(names, c.Name)
			}
		}
		return names, nil
	}
	if names, ok := sets[Set(text)]; ok {
		return names, nil
	}
	names := strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
	for _, name := range names {
		if _, ok := find(name); !ok {
			return nil, unknown(name)
		}
	}
	return names, nil
}
