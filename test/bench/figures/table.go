package figures

import (
	"fmt"
	"slices"
)

// Definition is a figure that a part measures. Where its title compares, both sides are measured in
// the same run, in turns.
type Definition struct {
	ID, Title, Unit string
	Bound           *Bound // nil without one
}

// Part is what one run measures.
type Part struct {
	Name string
	// Command is what the run is started with, and Page the page in docs with its table.
	Command, Page string
	// Definitions are in the order of the table.
	Definitions []Definition
}

// Parts returns all parts.
func Parts() []*Part { return []*Part{Apps, Streams, Monitoring, Tunnel, Agents, Gateway, Chaos} }

// mostMemory is the most that the agent may ever have resident, in MiB.
const mostMemory = 150

// Apps is the agent beside 25 000 pods.
var Apps = part("apps", []Definition{
	{"memory_now", "agent's memory", "MiB", atMost(mostMemory)},
	{"memory_peak", "agent's memory, peak", "MiB", atMost(mostMemory)},
	{"restart_memory_now", "restarted agent's memory", "MiB", atMost(mostMemory)},
	{"restart_memory_peak", "restarted agent's memory, peak", "MiB", atMost(mostMemory)},
	{"restart_seconds", "restarted agent serves again", "s", nil},
	{"get_p50", "one App, p50", "ms", nil},
	{"get_p99", "one App, p99", "ms", nil},
	{"list_p50", "list of all Apps, p50", "ms", atMost(200)},
	{"list_p99", "list of all Apps, p99", "ms", atMost(200)},
	{"deploy_answer_p50", "deploy answered, p50", "ms", nil},
	{"deploy_applied_p50", "deploy applied, p50", "ms", atMost(500)},
	{"deploy_applied_p99", "deploy applied, p99", "ms", atMost(500)},
	{"deploy_crowd_answer_p50", "deploy among rollouts answered, p50", "ms", nil},
	{"deploy_crowd_applied_p50", "deploy among rollouts applied, p50", "ms", nil},
	{"deploy_crowd_applied_p99", "deploy among rollouts applied, p99", "ms", nil},
	{"ready_client", "pod ready by the Go client, median", "ms", nil},
	{"ready_command", "pod ready by `pipeops-runner`, median", "ms", nil},
	{"ready_kubectl", "pod ready by `kubectl apply`, median", "ms", nil},
	{"ready_requests", "pod ready by bare requests, median", "ms", nil},
	{"ready_ratio_client", "pod ready: Go client to `kubectl apply`", "", atMost(1.15)},
	{"ready_ratio_command", "pod ready: `pipeops-runner` to `kubectl apply`", "", atMost(1.15)},
})

const (
	// mostGrowth is how much more memory the agent may have in the second half of a run than in the
	// first, in MiB: uncollected garbage varies by as much.
	mostGrowth = 10
	// mostEnd is how long a stream may stay after the other side left, in ms.
	mostEnd = 1000
	// portGrace is how long containerd keeps a forwarded connection whose port has closed, in ms.
	// It waits for the other direction, and does not report the end before that.
	portGrace = 1000
	// IdleGoroutines is how many goroutines idle connections may have.
	IdleGoroutines = 10
)

// Streams is the part about followed logs, port-forwards and copies.
var Streams = part("streams", []Definition{
	{"commands_p50", "50 commands a second beside a flood, p50", "ms", nil},
	{"commands_p99", "50 commands a second beside a flood, p99", "ms", nil},
	{"commands_stalled_p99", "the same with a stalled reader, p99", "ms", nil},
	{"commands_stalled_ratio", "p99 with a stalled reader to that without", "", atMost(1.5)},
	{"crowd_failed", "many stalled readers: commands that fail", "", atMost(0)},
	{"crowd_p99", "many stalled readers: commands, p99", "ms", nil},
	{"crowd_memory_peak", "many stalled readers: agent's memory, at most", "MiB", atMost(mostMemory)},
	{"logs_lines", "followed logs: lines read by all", "", nil},
	{"logs_megabytes", "followed logs: read by all", "MB/s", nil},
	{"logs_wrong", "followed logs: lines missing, doubled or changed", "", atMost(0)},
	{"logs_cut", "followed logs: ended by the agent", "", atMost(0)},
	{"logs_memory_peak", "followed logs: agent's memory, at most", "MiB", atMost(mostMemory)},
	{"logs_memory_growth", "followed logs: agent's memory, second half less first", "MiB", atMost(mostGrowth)},
	{"logs_closed", "followed logs: closed after all readers went", "ms", atMost(mostEnd)},
	{"logs_goroutines", "followed logs: agent's goroutines then, more than before", "", atMost(IdleGoroutines)},
	{"forward_down", "bytes down a forwarded port", "MiB/s", nil},
	{"forward_up", "bytes up a forwarded port", "MiB/s", nil},
	{"copy_in", "bytes copied into the container", "MiB/s", nil},
	{"copy_out", "bytes copied out of the container", "MiB/s", nil},
	{"bytes_wrong", "bytes: of the four ways, not the same at both ends", "", atMost(0)},
	{"bytes_memory_peak", "bytes: agent's memory, at most", "MiB", atMost(mostMemory)},
	{"bytes_memory_growth", "bytes: agent's memory, second half less first", "MiB", atMost(mostGrowth)},
	{"inside_caller_gone", "commands and ports closed after their callers went", "ms", atMost(mostEnd)},
	{"container_removed", "container removed by containerd after its process was killed", "ms", nil},
	{"commands_process_gone", "commands closed after containerd had removed the container", "ms", atMost(mostEnd)},
	{"ports_process_gone", "ports closed after the pod's process was killed", "ms", atMost(portGrace + mostEnd)},
	{"logs_app_gone", "logs closed after their App was deleted", "ms", atMost(mostEnd)},
	{"logs_job_done", "a Job's log closed after Kubernetes called the Job complete", "ms", atMost(mostEnd)},
})

// Monitoring is what the agent and the components of monitoring need on a small machine: one of
// 2 GB can spare 512 MiB for them.
var Monitoring = part("monitoring", []Definition{
	{"total", "all of these together, at most", "MiB", atMost(512)},
	{"agent", "agent", "MiB", nil},
	{"prometheus-server", "Prometheus", "MiB", nil},
	{"loki", "Loki", "MiB", nil},
	{"alertmanager", "Alertmanager", "MiB", nil},
	{"kube-state-metrics", "kube-state-metrics", "MiB", nil},
	{"node-exporter", "node_exporter", "MiB", nil},
	{"reload", "what reloads Prometheus' configuration", "MiB", nil},
	{"series", "series that Prometheus has", "", nil},
	{"restarts", "containers that restarted", "", atMost(0)},
})

// Tunnel is the tunnel beside its peers.
var Tunnel = part("tunnel", slices.Concat(
	ofProtocols("tunnel.", []Definition{
		{"rps50", "requests/s of 50 clients, to direct TLS", "", atLeast(0.65)},
		{"rps200", "requests/s of 200 clients, to direct TLS", "", nil},
		{"p99", "p99 of 50 clients, to direct TLS", "", nil},
		{"p50", "p50 of one client, to direct TLS", "", nil},
		{"down", "bulk down, to direct TLS", "", atLeast(0.5)},
		{"up", "bulk up, to direct TLS", "", atLeast(0.5)},
		{"far.down", "bulk down, far", "MB/s", atLeast(180)},
		{"far.up", "bulk up, far", "MB/s", atLeast(180)},
		{"stalled", "p99 of 50 beside a stalled download, to alone", "", atMost(1.2)},
		{"full", "p99 of 50 beside a download at full speed, to alone, to the same of direct TLS", "", atMost(2)},
	}),
	aheadOf("frp", "chisel", "konnectivity"),
	[]Definition{{"tunnel.reconnect", "back after its relay was killed", "s", nil}},
))

// Agents is a control plane with 10 000 simulated agents.
var Agents = part("agents", []Definition{
	{"agents.enrolled", "registrations", "/s", nil},
	{"agents.storm", "storm: all connected and heard", "s", atMost(30)},
	{"agents.storm.cpu", "storm: the control plane's CPU an agent", "ms", nil},
	{"agents.storm.cpu.crowd", "storm: an agent's own CPU", "ms", nil},
	{"agents.restart", "back after the control plane was killed", "s", atMost(40)},
	{"agents.memory", "control plane's memory an agent", "KB", atMost(120)},
	{"agents.memory.together", "memory of control plane and agents together", "GB", nil},
	{"agents.memory.crowd", "memory of a simulated agent", "KB", nil},
	{"agents.cpu", "control plane's idle CPU an agent, of a core", "%", atMost(0.005)},
	{"agents.beats", "heartbeats meanwhile", "/s", nil},
	{"agents.written", "written to disk a heartbeat", "KB", nil},
	{"console.paint", "console: first paint of the fleet's page in Chromium, median", "ms", atMost(300)},
	{"console.page", "console: the fleet's page, median", "ms", nil},
	{"console.search", "console: a search in the fleet, median", "ms", atMost(100)},
	{"console.update", "console: a change is shown in an open page, the slowest", "ms", atMost(1000)},
	{"console.memory.pages", "console: control plane's memory for 100 open pages", "MiB", atMost(64)},
	{"console.memory", "console: the same after all pages were closed", "MiB", atMost(32)},
	{"announced.taken", "events taken from agents while RabbitMQ is dead", "/s", nil},
	{"announced.lost", "announcements lost", "", atMost(0)},
	{"announced.disorder", "announcements out of order for an agent", "", atMost(0)},
	{"announced.again", "announcements that came again", "", nil},
	{"announced.rate", "announcements heard while RabbitMQ is up", "/s", atLeast(3000)},
})

// Gateway is the gateway in tunnel mode, beside direct connections and frp's HTTPS vhost.
var Gateway = part("gateway", slices.Concat(
	ofProtocols("gateway.", []Definition{
		{"rate", "time a request of 50 visitors, to direct", "", atMost(1.8)},
		{"p50", "p50 of one visitor, to direct", "", atMost(1.8)},
		{"down", "bulk down, to direct", "", atLeast(0.5)},
	}),
	[]Definition{
		{"gateway.ahead.frp", "HTTP/2: requests/s of 50 visitors, to those over frp's HTTPS vhost", "", atLeast(1.2)},
		{"gateway.runner.p99", "p99 of a Runner's commands beside a public flood, to alone", "", atMost(2)},
		{"gateway.runner.p99.past", "the same beside a flood past the tunnel", "", nil},
		{"gateway.host.p99", "p99 of a host beside another's flood, to alone", "", atMost(2)},
		{"gateway.host.p99.past", "the same beside a flood past the tunnel", "", nil},
		{"gateway.lookup", "lookup of one of 1 000 hosts", "µs", atMost(5)},
		{"gateway.change", "a changed route serves, the slowest", "ms", atMost(1000)},
		{"gateway.memory", "memory a route", "KB", atMost(4)},
	},
))

// Chaos is an hour in which everything fails.
var Chaos = &Part{Name: "chaos", Command: "make chaos", Page: "contributing/chaos.md", Definitions: []Definition{
	{"failed", "rounds that did not become quiet, or did not balance", "", atMost(0)},
	{"unbalanced", "things that do not balance", "", atMost(0)},
	{"rounds", "rounds that balanced", "", nil},
	{"faults", "faults", "", nil},
	{"kills", "kills among them", "", nil},
	{"kills.broker", "kills of RabbitMQ", "", nil},
	{"kills.database", "kills of PostgreSQL", "", nil},
	{"kills.kubernetes", "kills of Kubernetes' API server", "", nil},
	{"kills.planes", "kills of control planes", "", nil},
	{"kills.agents", "kills of agents", "", nil},
	{"acknowledged", "commands acknowledged", "", nil},
	{"refused", "commands refused", "", nil},
	{"unanswered", "commands without an answer", "", nil},
	{"heard", "announcements heard", "", nil},
	{"audited", "records of the audit log", "", nil},
	{"excused", "acknowledged commands without a record: their agent was killed before it had kept it", "", nil},
	{"objects", "objects in the cluster", "", nil},
}}

func part(name string, definitions []Definition) *Part {
	return &Part{Name: name, Command: "make bench-" + name, Page: "contributing/bench.md", Definitions: definitions}
}

// ofProtocols defines figures once for HTTP/1.1 and once for HTTP/2.
func ofProtocols(id string, definitions []Definition) (all []Definition) {
	for _, p := range [][2]string{{"http/1.1", "HTTP/1.1"}, {"h2", "HTTP/2"}} {
		for _, d := range definitions {
			all = append(all, Definition{id + p[0] + "." + d.ID, p[1] + ": " + d.Title, d.Unit, d.Bound})
		}
	}
	return all
}

// aheadOf defines our rates to those over peers.
func aheadOf(peers ...string) (all []Definition) {
	for _, peer := range peers {
		for _, clients := range []int{50, 200} {
			all = append(all, Definition{fmt.Sprintf("tunnel.ahead.%s.%d", peer, clients),
				fmt.Sprintf("requests/s of %d clients, to those over %s", clients, peer), "", atLeast(1.4)})
		}
	}
	return all
}
