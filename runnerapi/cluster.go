package runnerapi

// Cluster describes the cluster the agent runs in.
type Cluster struct {
	AgentID           string         `json:"agentId"`
	Name              string         `json:"name" doc:"Name the agent registered under."`
	AgentVersion      string         `json:"agentVersion"`
	KubernetesVersion string         `json:"kubernetesVersion" example:"v1.36.3"`
	Distribution      string         `json:"distribution" doc:"k3s, k3d, kind, minikube, eks, gke, aks, ... or kubernetes."`
	Provider          string         `json:"provider,omitempty" doc:"Cloud or host from the nodes' provider ID, where known."`
	Nodes             NodeCount      `json:"nodes"`
	Pods              PodCount       `json:"pods"`
	CPU               ResourceFigure `json:"cpu" doc:"In thousandths of a core."`
	Memory            ResourceFigure `json:"memory" doc:"In bytes."`
	Policy            *PolicyState   `json:"policy,omitempty" doc:"What holds of what the cluster's owner lets Runners do."`
}

// NodeCount counts nodes.
type NodeCount struct {
	Total int `json:"total"`
	Ready int `json:"ready"`
}

// PodCount counts pods.
type PodCount struct {
	Running     int   `json:"running"`
	Allocatable int64 `json:"allocatable" doc:"How many pods the nodes together take."`
}

// ResourceFigure is one resource, summed over all nodes.
type ResourceFigure struct {
	Allocatable int64  `json:"allocatable"`
	Used        *int64 `json:"used,omitempty" doc:"Absent where the cluster has no metrics API."`
}
