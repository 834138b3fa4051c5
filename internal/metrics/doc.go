// Package metrics is the common part of our programs' metrics: a Prometheus registry for each
// program, and the ports at which metrics and profiles are read.
//
// It is a leaf package: parties may import it. Wires do not need it: they report events by
// functions, and a program that embeds them (a Runner service) counts as it likes. Each party
// decides what it counts, and must keep it bounded: no label contains a name, an ID or a path,
// but for a bounded number of Apps and agents
// (docs/reference/metrics.md).
package metrics
