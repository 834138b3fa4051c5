package sizing

import (
	"math"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/app/workload"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// What a recommendation stands on. A process that gets less CPU than it wants
// waits; one that gets less memory is killed: so CPU follows what it uses
// nearly always, memory the most that it ever used.
const (
	cpuMargin    = 15 // percent
	memoryMargin = 20 // percent
	cpuFloor     = 10 // thousandths of a core
	memoryFloor  = 32 << 20
)

// recommend returns what would fit a container.
func recommend(a *v1alpha1.App, name string, h history) runnerapi.Recommendation {
	all := h.total()
	r := runnerapi.Recommendation{Name: name, Samples: all.cpu.count(), Since: h.since()}
	r.CPU = runnerapi.Fit{Peak: all.cpu.peak, P95: all.cpu.percentile(95, cpuUnit), Margin: cpuMargin, Basis: "p95"}
	r.Memory = runnerapi.Fit{Peak: all.memory.peak, P95: all.memory.percentile(95, memoryUnit), Margin: memoryMargin, Basis: "peak"}
	r.CPU.Request = withMargin(r.CPU.P95, cpuMargin)
	r.Memory.Request = ceilTo(withMargin(r.Memory.Peak, memoryMargin), memoryUnit)
	raise(&r.CPU, cpuFloor, "floor")
	raise(&r.Memory, memoryFloor, "floor")
	if s := a.Spec.RightSizing; s != nil {
		bound(&r.CPU, s.CPU.Min, s.CPU.Max, (*resource.Quantity).MilliValue)
		bound(&r.Memory, s.Memory.Min, s.Memory.Max, (*resource.Quantity).Value)
	}
	if name == a.Name { // a request over its limit is none that Kubernetes takes
		lower(&r.CPU, a.Spec.Resources.Limits.CPU, "limit", (*resource.Quantity).MilliValue)
		lower(&r.Memory, a.Spec.Resources.Limits.Memory, "limit", (*resource.Quantity).Value)
	}
	return r
}

func withMargin(n, percent int64) int64 {
	return int64(math.Ceil(float64(n) * float64(100+percent) / 100))
}

func ceilTo(n, unit int64) int64 { return (n + unit - 1) / unit * unit }

func raise(f *runnerapi.Fit, least int64, why string) {
	if f.Request < least {
		f.Request, f.Bound = least, why
	}
}

func lower(f *runnerapi.Fit, most, why string, value func(*resource.Quantity) int64) {
	if q, ok := workload.Quantity(most); ok && f.Request > value(&q) {
		f.Request, f.Bound = value(&q), why
	}
}

func bound(f *runnerapi.Fit, least, most string, value func(*resource.Quantity) int64) {
	if q, ok := workload.Quantity(least); ok {
		raise(f, value(&q), "min")
	}
	lower(f, most, "max", value)
}

// differs reports whether a change is worth making.
func differs(have, want v1alpha1.AppliedSizing) bool {
	return far(have.CPU, want.CPU) || far(have.Memory, want.Memory)
}

// far reports whether two figures are a tenth apart or more.
func far(have, want int64) bool {
	d := have - want
	return max(d, -d)*10 >= max(have, 1)
}
