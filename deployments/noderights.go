package deployments

import _ "embed" // node-rights.yaml

//go:embed node-rights.yaml
var nodeRights []byte

// NodeRights returns the content of node-rights.yaml: the rights to cordon and drain nodes, and to
// read their events. An agent has them only if the cluster owner applies it.
func NodeRights() []byte { return nodeRights }
