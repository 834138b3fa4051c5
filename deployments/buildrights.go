package deployments

import _ "embed" // build-rights.yaml

//go:embed build-rights.yaml
var buildRights []byte

// BuildRights returns the content of build-rights.yaml: the namespace in which images may be built,
// which exists only if the cluster owner applies it.
func BuildRights() []byte { return buildRights }
