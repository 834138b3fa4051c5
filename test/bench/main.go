// Command bench measures the agent as it is shipped, a pod in a real Kubernetes reached through the
// tunnel, against the product's bounds. `make bench` runs it; docs/contributing/bench.md explains
// the output.
package main

import (
	"github.com/pipeops/pipeops-vm-agent/test/bench/figures"
	"github.com/pipeops/pipeops-vm-agent/test/bench/run"
)

func main() {
	run.Main(map[*figures.Part]run.Benchmark{
		figures.Apps: &apps{}, figures.Streams: &streams{}, figures.Monitoring: &monitoring{},
	})
}
