package deployments

import _ "embed" // manifest-rights.yaml

//go:embed manifest-rights.yaml
var manifestRights []byte

// ManifestRights returns the content of manifest-rights.yaml: rights to apply manifests of more
// kinds than those of Apps. An agent has them only if the cluster owner applies it.
func ManifestRights() []byte { return manifestRights }
