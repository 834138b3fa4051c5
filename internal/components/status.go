package components

import (
	"slices"
	"time"
)

// Status is how a component is, as far as its releases and the cluster's APIs tell.
type Status struct {
	Component string `json:"component"`
	What      string `json:"what"`
	// Present is what in the cluster already provides the same; empty for nothing.
	Present string `json:"present,omitempty"`
	// Releases are those that this package made.
	Releases []ReleaseStatus `json:"releases,omitempty"`
	// State is how its workloads are; nil for a component without any.
	State *State `json:"state,omitempty"`
}

// ReleaseStatus is a release and the version that this program would install.
type ReleaseStatus struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Status    string `json:"status"`
	Version   string `json:"version"`
	// Newest is the version that this program has pinned, and that upgrade installs.
	Newest  string    `json:"newest"`
	Changed time.Time `json:"changed"` // when this revision was made
}

// Statuses returns how each component is. The states are those of the components with workloads.
func Statuses(cluster Cluster, states []State) []Status {
	all := make([]Status, 0, len(table))
	for _, c := range table {
		s := Status{Component: c.Name, What: c.What, Present: c.present(cluster)}
		for _, r := range cluster.Installed[c.Name] {
			s.Releases = append(s.Releases, ReleaseStatus{
				Namespace: r.Namespace, Name: r.Name, Status: r.Status, Version: r.Version, Newest: c.version(r.Name), Changed: r.Changed,
			})
		}
		if i := slices.IndexFunc(states, func(s State) bool { return s.Component == c.Name }); i >= 0 && len(s.Releases) > 0 {
			s.State = &states[i]
		}
		all = append(all, s)
	}
	return all
}

// version returns the version of a chart that this build installs.
func (c *Component) version(chart string) string {
	for _, own := range c.Charts {
		if own.Name == chart {
			return own.Version
		}
	}
	return ""
}
