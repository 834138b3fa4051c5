// Command bench measures the agent as it is shipped, a pod in a real Kubernetes reached through the
// tunnel, against the product's bounds. `make bench` runs it; docs/contributing/bench.md explains
// the output.
package main

import "github.com/pipeops/pipeops-vm-agent/test/bench/run"

func main() {
	run.Main(map[string]run.Benchmark{"apps": &apps{}, "streams": &streams{}, "monitoring": &monitoring{}, "sources": &sources{}})
}
