package figures

const (
	mostStorm, mostRestart = 30, 40   // s
	mostAgentMemory        = 120      // KB an agent, of the control plane
	mostIdleCPU            = 0.005    // % of a core an agent, of the control plane
	leastAnnounced         = 3000     // a second
	mostPaint, mostSearch  = 300, 100 // ms, of the console
	mostUpdate             = 1000     // ms
	mostConsole, mostPages = 32, 64   // MiB of the control plane
)

// Agents is a control plane with 10 000 simulated agents.
var Agents = &Part{Name: "agents", Command: "make bench-agents", Page: "contributing/bench.md", Definitions: []Definition{
	{"agents.enrolled", "registrations", "/s", nil},
	{"agents.storm", "storm: all connected and heard", "s", atMost(mostStorm)},
	{"agents.storm.cpu", "storm: the control plane's CPU an agent", "ms", nil},
	{"agents.storm.cpu.crowd", "storm: an agent's own CPU", "ms", nil},
	{"agents.restart", "back after the control plane was killed", "s", atMost(mostRestart)},
	{"agents.memory", "control plane's memory an agent", "KB", atMost(mostAgentMemory)},
	{"agents.memory.together", "memory of control plane and agents together", "GB", nil},
	{"agents.memory.crowd", "memory of a simulated agent", "KB", nil},
	{"agents.cpu", "control plane's idle CPU an agent, of a core", "%", atMost(mostIdleCPU)},
	{"agents.beats", "heartbeats meanwhile", "/s", nil},
	{"agents.written", "written to disk a heartbeat", "KB", nil},
	{"console.paint", "console: first paint of the fleet's page in Chromium, median", "ms", atMost(mostPaint)},
	{"console.page", "console: the fleet's page, median", "ms", nil},
	{"console.search", "console: a search in the fleet, median", "ms", atMost(mostSearch)},
	{"console.update", "console: a change is shown in an open page, the slowest", "ms", atMost(mostUpdate)},
	{"console.memory.pages", "console: control plane's memory for 100 open pages", "MiB", atMost(mostPages)},
	{"console.memory", "console: the same after all pages were closed", "MiB", atMost(mostConsole)},
	{"announced.taken", "events taken from agents while RabbitMQ is dead", "/s", nil},
	{"announced.lost", "announcements lost", "", atMost(0)},
	{"announced.disorder", "announcements out of order for an agent", "", atMost(0)},
	{"announced.again", "announcements that came again", "", nil},
	{"announced.rate", "announcements heard while RabbitMQ is up", "/s", atLeast(leastAnnounced)},
}}
