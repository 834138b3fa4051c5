package figures

// mostMonitoring is the memory that a machine of 2 GB can spare for the agent and monitoring, in
// MiB.
const mostMonitoring = 512

// Monitoring is what the agent and the components of monitoring need on a small machine.
var Monitoring = &Part{Name: "monitoring", Command: "make bench-monitoring", Page: "contributing/bench.md", Definitions: []Definition{
	{"total", "all of these together, at most", "MiB", atMost(mostMonitoring)},
	{"agent", "agent", "MiB", nil},
	{"prometheus-server", "Prometheus", "MiB", nil},
	{"loki", "Loki", "MiB", nil},
	{"alertmanager", "Alertmanager", "MiB", nil},
	{"kube-state-metrics", "kube-state-metrics", "MiB", nil},
	{"node-exporter", "node_exporter", "MiB", nil},
	{"reload", "what reloads Prometheus' configuration", "MiB", nil},
	{"series", "series that Prometheus has", "", nil},
	{"restarts", "containers that restarted", "", atMost(0)},
}}
