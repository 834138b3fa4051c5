package policy

import (
	"github.com/pipeops/pipeops-vm-agent/internal/policy/preset"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// presets are sets of rules that follow a policy's own, by name. docs/cluster-owner/policy.md shows
// them.
var presets = map[string][]Rule{
	preset.Viewer: {{Name: "viewer", Commands: []string{reads}}},
	preset.Deploy: {{Name: "default"}},
	preset.Full: {{
		Name: "full",
		Commands: []string{
			anything, runnerapi.ExecCall, runnerapi.PortForwardCall, putRelease, rollbackRelease, "delete-release",
			ApplyManifests, "delete-set", "put-source", "put-build",
		},
		Kinds: []string{anything},
	}},
}
