package composefile

import (
	"slices"

	"github.com/compose-spec/compose-go/v2/types"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// nvidia is what Compose's driver of GPUs is in a cluster. It is the driver where none is named.
const nvidia = "nvidia.com/gpu"

// gpus takes over GPUs of NVIDIA, by their number: a pod cannot choose among a node's, nor take
// all.
func (c *conversion) gpus(field string, requests []types.DeviceRequest) {
	for _, r := range requests {
		switch {
		case !slices.Contains(r.Capabilities, "gpu") && field != "gpus", r.Driver != "" && r.Driver != "nvidia":
			c.cannot(field, "only NVIDIA's GPUs are read; name another device in resources.devices of the App")
			continue
		case r.Count < 1 || r.Count > runnerapi.MaxDevices || len(r.IDs) > 0:
			c.cannot(field, "name a count, such as 1: a pod gets a number of GPUs, not all and no certain ones")
			continue
		}
		devices := &c.out.Spec.Resources.Devices
		if *devices == nil {
			*devices = map[string]int32{}
		}
		(*devices)[nvidia] += int32(r.Count)
	}
}
