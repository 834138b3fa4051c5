package appform

import "github.com/pipeops/pipeops-vm-agent/runnerapi"

// Custom is the size of an App that has none of the presets.
const Custom = "custom"

// Preset is a size of a pod that people choose by name.
type Preset struct {
	Name, Text string
	Resources  runnerapi.Resources
}

// Presets are the sizes, the smallest first.
var Presets = []Preset{
	{"", "No reservation: the cluster's defaults", runnerapi.Resources{}},
	preset("small", "Small: 0.1 CPU, 128 to 256 MiB", "100m", "128Mi", "256Mi"),
	preset("medium", "Medium: 0.25 CPU, 256 to 512 MiB", "250m", "256Mi", "512Mi"),
	preset("large", "Large: 1 CPU, 1 to 2 GiB", "1", "1Gi", "2Gi"),
}

func preset(name, text, cpu, memory, most string) Preset {
	return Preset{name, text, runnerapi.Resources{
		Requests: runnerapi.ResourceAmounts{CPU: cpu, Memory: memory}, Limits: runnerapi.ResourceAmounts{Memory: most},
	}}
}

func sizeOf(r runnerapi.Resources) string {
	for _, p := range Presets {
		if sameAmounts(p.Resources, r) {
			return p.Name
		}
	}
	return Custom
}

// sameAmounts compares what the form has of resources.
func sameAmounts(a, b runnerapi.Resources) bool {
	return a.Requests == b.Requests && a.Limits == b.Limits
}
