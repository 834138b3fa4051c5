package deployments

import _ "embed" // manifest-rights.yaml

//go:embed manifest-rights.yaml
var manifestRights []byte

// ManifestRights returns what manifest-rights.yaml holds: rights to apply manifests of more kinds
// than Apps are made of, which no agent has unless the owner of its cluster applies it.
func ManifestRights() []byte { return manifestRights }
