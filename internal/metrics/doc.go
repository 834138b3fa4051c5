// Package metrics is what the numbers of our programs have in common: a Prometheus
// registry that is each one's own, and the ports at which numbers and profiles are read.
//
// It is a leaf: parties may import it. Wires do not need to: they tell what happens by
// functions, and whoever embeds them (a Runner service) counts as it likes. What is
// counted is each party's business, and that it stays bounded: no label holds a name, an
// ID or a path (docs/observability.md).
package metrics
