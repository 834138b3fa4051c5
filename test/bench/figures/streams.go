package figures

const (
	// mostStalledReader is how many times slower commands may be beside a stalled reader.
	mostStalledReader = 1.5
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
var Streams = &Part{Name: "streams", Command: "make bench-streams", Page: "contributing/bench.md", Definitions: []Definition{
	{"commands_p50", "50 commands a second beside a flood, p50", "ms", nil},
	{"commands_p99", "50 commands a second beside a flood, p99", "ms", nil},
	{"commands_stalled_p99", "the same with a stalled reader, p99", "ms", nil},
	{"commands_stalled_ratio", "p99 with a stalled reader to that without", "", atMost(mostStalledReader)},
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
}}
