package figures

const (
	// mostMemory is the most that the agent may ever have resident, in MiB.
	mostMemory = 150
	// mostList bounds the answer to a list call, and mostApply the time until a deploy is
	// applied, in ms.
	mostList, mostApply = 200, 500
	// mostReady is how much longer a pod may take to be ready by way of the agent.
	mostReady = 1.15
)

// Apps is the agent beside 25 000 pods.
var Apps = &Part{Name: "apps", Command: "make bench-apps", Page: "contributing/bench.md", Definitions: []Definition{
	{"memory_now", "agent's memory", "MiB", atMost(mostMemory)},
	{"memory_peak", "agent's memory, peak", "MiB", atMost(mostMemory)},
	{"restart_memory_now", "restarted agent's memory", "MiB", atMost(mostMemory)},
	{"restart_memory_peak", "restarted agent's memory, peak", "MiB", atMost(mostMemory)},
	{"restart_seconds", "restarted agent serves again", "s", nil},
	{"get_p50", "one App, p50", "ms", nil},
	{"get_p99", "one App, p99", "ms", nil},
	{"list_p50", "list of all Apps, p50", "ms", atMost(mostList)},
	{"list_p99", "list of all Apps, p99", "ms", atMost(mostList)},
	{"deploy_answer_p50", "deploy answered, p50", "ms", nil},
	{"deploy_applied_p50", "deploy applied, p50", "ms", atMost(mostApply)},
	{"deploy_applied_p99", "deploy applied, p99", "ms", atMost(mostApply)},
	{"deploy_crowd_answer_p50", "deploy among rollouts answered, p50", "ms", nil},
	{"deploy_crowd_applied_p50", "deploy among rollouts applied, p50", "ms", nil},
	{"deploy_crowd_applied_p99", "deploy among rollouts applied, p99", "ms", nil},
	{"ready_client", "pod ready by the Go client, median", "ms", nil},
	{"ready_command", "pod ready by `pipeops-runner`, median", "ms", nil},
	{"ready_kubectl", "pod ready by `kubectl apply`, median", "ms", nil},
	{"ready_requests", "pod ready by bare requests, median", "ms", nil},
	{"ready_ratio_client", "pod ready: Go client to `kubectl apply`", "", atMost(mostReady)},
	{"ready_ratio_command", "pod ready: `pipeops-runner` to `kubectl apply`", "", atMost(mostReady)},
}}
