package deployments

import _ "embed" // node-rights.yaml

//go:embed node-rights.yaml
var nodeRights []byte

// NodeRights returns what node-rights.yaml holds: the rights to cordon and drain nodes, and to read
// their events, which no agent has unless the owner of its cluster applies it.
func NodeRights() []byte { return nodeRights }
