package deployments

import _ "embed" // for the alert rules

var (
	// Rules are the alert rules about the metrics of control plane and agent.
	//
	//go:embed prometheus/rules.yaml
	Rules []byte
	// ClusterRules are those about nodes, volumes and certificates of a cluster.
	//
	//go:embed prometheus/cluster.yaml
	ClusterRules []byte
)
