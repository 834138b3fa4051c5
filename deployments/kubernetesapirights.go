package deployments

import _ "embed" // kubernetes-api-rights.yaml

//go:embed kubernetes-api-rights.yaml
var kubernetesAPIRights []byte

// KubernetesAPIRights returns the content of kubernetes-api-rights.yaml. Its first document is the
// ClusterRole: the right to send requests to the API server in the name of one user and one group.
// An agent has it only if the cluster owner applies it.
func KubernetesAPIRights() []byte { return kubernetesAPIRights }
