package runnerapi

import (
	"time"
)

// Node is a machine of the cluster.
type Node struct {
	Name           string          `json:"name" example:"node-1"`
	Roles          []string        `json:"roles,omitempty" doc:"From the labels node-role.kubernetes.io/ROLE."`
	Ready          bool            `json:"ready"`
	Schedulable    bool            `json:"schedulable" doc:"False where the node is cordoned."`
	Conditions     []NodeCondition `json:"conditions" nullable:"false"`
	Taints         []NodeTaint     `json:"taints,omitempty"`
	CPU            NodeResource    `json:"cpu" doc:"In thousandths of a core."`
	Memory         NodeResource    `json:"memory" doc:"In bytes."`
	Pods           NodePods        `json:"pods"`
	KubeletVersion string          `json:"kubeletVersion" example:"v1.36.3"`
	OS             string          `json:"os" example:"linux"`
	Architecture   string          `json:"architecture" example:"amd64"`
	Addresses      []string        `json:"addresses,omitempty" doc:"Internal ones."`
	CreatedAt      time.Time       `json:"createdAt,omitzero"`
	Events         []ClusterEvent  `json:"events,omitempty" doc:"Its latest Kubernetes events, newest first; of one node alone, and where the agent may read it (docs/deployer/nodes.md)."`
}

// MaxNodeEvents is the maximum number of events in the answer about a node.
const MaxNodeEvents = 20

// NodeCondition is one thing that a node's kubelet says of it.
type NodeCondition struct {
	Type    string    `json:"type" example:"MemoryPressure"`
	Status  string    `json:"status" enum:"True,False,Unknown"`
	Reason  string    `json:"reason,omitempty"`
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since,omitzero"`
}

// NodeTaint keeps pods away that do not tolerate it.
type NodeTaint struct {
	Key    string `json:"key"`
	Value  string `json:"value,omitempty"`
	Effect string `json:"effect" enum:"NoSchedule,PreferNoSchedule,NoExecute"`
}

// NodeResource is what a node has of a resource, and what of it is taken.
type NodeResource struct {
	Capacity    int64  `json:"capacity"`
	Allocatable int64  `json:"allocatable" doc:"What of it is left to pods."`
	Requested   int64  `json:"requested" doc:"By the pods that run there or are about to, as far as the agent may see them."`
	Used        *int64 `json:"used,omitempty" doc:"Absent where the cluster has no metrics API, or none for this node."`
}

// NodePods counts a node's pods.
type NodePods struct {
	Allocatable int64 `json:"allocatable" doc:"How many the node takes."`
	Count       int   `json:"count" doc:"Those that have not ended."`
}

// NodeList is all nodes.
type NodeList struct {
	Items []Node `json:"items" nullable:"false"`
	Page
}

// ClusterEvent is an event that Kubernetes keeps, usually for an hour.
type ClusterEvent struct {
	Namespace string    `json:"namespace"`
	Type      string    `json:"type" example:"Warning" doc:"Normal or Warning."`
	Reason    string    `json:"reason" example:"BackOff"`
	Message   string    `json:"message"`
	Object    EventOf   `json:"object"`
	Source    string    `json:"source,omitempty" doc:"Component that tells of it." example:"kubelet"`
	Count     int32     `json:"count" doc:"How often it happened."`
	FirstSeen time.Time `json:"firstSeen,omitzero"`
	LastSeen  time.Time `json:"lastSeen,omitzero"`
}

// EventOf is what an event is about.
type EventOf struct {
	Kind string `json:"kind" example:"Pod"`
	Name string `json:"name" example:"web-7d4b9c6f5-x2x4q"`
}

// EventFilter selects events. What is empty selects all.
type EventFilter struct {
	Kind, Name, Type string
	Since            time.Duration // no older than this
	Limit            int           // the newest; MaxEvents when zero
}

// MaxEvents is the maximum number of events in one answer.
const MaxEvents = 1000

// EventList is events, the newest first.
type EventList struct {
	Items []ClusterEvent `json:"items" nullable:"false"`
}

// DrainOptions are the body of the drain call.
type DrainOptions struct {
	GracePeriodSeconds *int64 `json:"gracePeriodSeconds,omitempty" minimum:"0" maximum:"86400" doc:"Time that pods get to end; what each of them asks for when absent."`
	Force              bool   `json:"force,omitempty" doc:"Also pods that no controller makes again elsewhere: they are lost."`
	DeleteEmptyDirData bool   `json:"deleteEmptyDirData,omitempty" doc:"Also pods with emptyDir volumes, whose data is lost."`
}

// Drain is how far a drain has come.
type Drain struct {
	Node      string        `json:"node"`
	Done      bool          `json:"done" doc:"No pod is left that a drain takes away."`
	Evicted   []string      `json:"evicted,omitempty" doc:"NAMESPACE/NAME of the pods that this call had evicted."`
	Remaining []DrainingPod `json:"remaining,omitempty"`
	Skipped   int           `json:"skipped" doc:"Pods that stay: a DaemonSet's, and static ones."`
}

// DrainingPod is a pod that is still there.
type DrainingPod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	State     string `json:"state" enum:"terminating,blocked,failed,waiting" doc:"blocked: its disruption budget keeps it for now; failed: its eviction was refused otherwise; waiting: it has not been tried yet."`
	Message   string `json:"message,omitempty" doc:"What keeps it, with the name of the PodDisruptionBudget, or why its eviction failed."`
}

// JoinCommand describes how a machine becomes a worker of a k3s cluster.
type JoinCommand struct {
	Server  string `json:"server" doc:"URL of the k3s server." example:"https://192.0.2.10:6443"`
	Version string `json:"version,omitempty" doc:"Version of the server, where it is known: a worker may not be newer." example:"v1.35.2+k3s1"`
	Command string `json:"command" doc:"Line of shell for the machine that is to join, beside join-worker.sh. It reads the token from the variable K3S_TOKEN." example:"bash join-worker.sh https://192.0.2.10:6443 - <<<\"$K3S_TOKEN\""`
}

// JoinToken is the token with which machines join a k3s cluster. Anyone holding it can create a
// node, and can then read everything that the cluster gives to nodes.
type JoinToken struct {
	Token string `json:"token" doc:"For the variable K3S_TOKEN."`
}

// String keeps the token out of formatted output.
func (JoinToken) String() string { return "a token of k3s" }

// GoString keeps the token out of %#v.
func (t JoinToken) GoString() string { return t.String() }
