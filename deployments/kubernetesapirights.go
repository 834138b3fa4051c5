package deployments

import _ "embed" // kubernetes-api-rights.yaml

//go:embed kubernetes-api-rights.yaml
var kubernetesAPIRights []byte

// KubernetesAPIRights returns what kubernetes-api-rights.yaml holds, whose first document is the
// ClusterRole: the right to ask the API server in the name of one user and one group, which no
// agent has unless the owner of its cluster applies it.
func KubernetesAPIRights() []byte { return kubernetesAPIRights }
