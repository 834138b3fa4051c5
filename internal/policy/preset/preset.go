// Package preset has the names of a policy's presets, for programs that only name them. Package
// policy has their rules.
package preset

// The presets, from the least to the most that they allow. Deploy is that of a policy without
// rules.
const (
	Viewer = "viewer"
	Deploy = "deploy"
	Full   = "full"
)

// Names are those of all presets.
func Names() []string { return []string{Viewer, Deploy, Full} }
