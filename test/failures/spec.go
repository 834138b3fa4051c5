package failures

import (
	"cmp"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// light returns a spec that asks for next to nothing, so that many fit on a node, and ends soon.
func light(spec runnerapi.AppSpec) runnerapi.AppSpec {
	requests := &spec.Resources.Requests
	requests.CPU = cmp.Or(requests.CPU, "1m")
	if spec.Resources.Limits.Memory == "" {
		requests.Memory = cmp.Or(requests.Memory, "8Mi")
	}
	if spec.GraceSeconds == nil {
		spec.GraceSeconds = new(int64(1))
	}
	return spec
}

// runs returns a spec of an image with arguments.
func runs(image string, args ...string) runnerapi.AppSpec {
	return light(runnerapi.AppSpec{Image: image, Args: args})
}

// with returns the spec with a change.
func with(spec runnerapi.AppSpec, change func(*runnerapi.AppSpec)) runnerapi.AppSpec {
	change(&spec)
	return spec
}

// as returns the spec with another type.
func as(kind runnerapi.AppType, spec runnerapi.AppSpec) runnerapi.AppSpec {
	spec.Type = kind
	return spec
}

// once returns a Job that is not tried again.
func once(spec runnerapi.AppSpec) runnerapi.AppSpec {
	spec.Type, spec.Job = runnerapi.TypeJob, &runnerapi.JobOptions{Retries: new(int32(0))}
	return spec
}

// limited returns the spec with a memory limit.
func limited(spec runnerapi.AppSpec, memory string) runnerapi.AppSpec {
	spec.Resources = runnerapi.Resources{Requests: runnerapi.ResourceAmounts{CPU: "1m"}, Limits: runnerapi.ResourceAmounts{Memory: memory}}
	return spec
}

func tcp(port, period, failures int32) *runnerapi.Probe {
	return &runnerapi.Probe{TCP: &runnerapi.TCPProbe{Port: port}, PeriodSeconds: period, FailureThreshold: failures}
}

// Ready returns a readiness probe that hello passes unless its flags say otherwise.
func Ready(port int32) runnerapi.Probes {
	return runnerapi.Probes{Readiness: &runnerapi.Probe{
		HTTP: &runnerapi.HTTPProbe{Path: "/readyz", Port: port}, PeriodSeconds: 1, FailureThreshold: 2,
	}}
}
