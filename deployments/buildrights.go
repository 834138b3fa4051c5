package deployments

import _ "embed" // build-rights.yaml

//go:embed build-rights.yaml
var buildRights []byte

// BuildRights returns what build-rights.yaml holds: the namespace in which images may be built,
// which no cluster has unless its owner applies it.
func BuildRights() []byte { return buildRights }
