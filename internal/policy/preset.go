package policy

import (
	"maps"
	"slices"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// PresetDeploy is the preset of a policy without rules.
const PresetDeploy = "deploy"

// presets are sets of rules that follow a policy's own, by name. docs/cluster-owner/policy.md shows
// them.
var presets = map[string][]Rule{
	"viewer":     {{Name: "viewer", Commands: []string{reads}}},
	PresetDeploy: {{Name: "default"}},
	"full": {{
		Name: "full",
		Commands: []string{
			anything, runnerapi.ExecCall, runnerapi.PortForwardCall, putRelease, rollbackRelease, "delete-release",
			ApplyManifests, "delete-set", "put-source", "put-build",
		},
		Kinds: []string{anything},
	}},
}

// Presets returns the names of the presets, sorted.
func Presets() []string { return slices.Sorted(maps.Keys(presets)) }

// Preset returns the rules of a preset; nil if there is none of that name.
func Preset(name string) []Rule { return presets[name] }
