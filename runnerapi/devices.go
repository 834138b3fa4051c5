package runnerapi

import (
	"maps"
	"slices"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/printable"
)

// MaxDevices bounds how many of an extended resource a container may ask for.
const MaxDevices = 1_000_000

const (
	deviceName  = "a name has to be that of an extended resource, such as nvidia.com/gpu: with a domain that is not kubernetes.io"
	deviceCount = "has to be a whole number from 1 to 1000000"
	// DevicesCEL is the rule about the names, over resources as self.
	DevicesCEL = `!has(self.devices) || self.devices.all(k, k.matches('` + metaKeyPattern + `') && k.contains('/') && ` +
		`!k.contains('` + nativeDomain + `') && !k.startsWith('` + quotaPrefix + `'))`
	// DevicesMessage is what the rule says.
	DevicesMessage = deviceName

	nativeDomain = "kubernetes.io/"
	quotaPrefix  = "requests." // of a resource in a ResourceQuota
)

// ExtendedResource reports whether a name is that of an extended resource of Kubernetes, such as
// nvidia.com/gpu: device plugins make nodes report these.
func ExtendedResource(name string) bool {
	return metaKey.MatchString(name) && strings.Contains(name, "/") && !strings.Contains(name, nativeDomain) && !strings.HasPrefix(name, quotaPrefix)
}

func (v *validation) devices(field string, devices map[string]int32) {
	for _, name := range slices.Sorted(maps.Keys(devices)) {
		at := field + "." + printable.Clip(name)
		if !ExtendedResource(name) {
			v.add(at, deviceName)
		}
		if n := devices[name]; n < 1 || n > MaxDevices {
			v.add(at, deviceCount)
		}
	}
}
