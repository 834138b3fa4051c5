package announce

import (
	"fmt"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/printable"
)

// State is what the control plane knows about an agent's connection.
type State string

// The states of an agent.
const (
	StatePending State = "pending" // registered, its tunnel has not been up yet
	StateOnline  State = "online"
	StateOffline State = "offline"
	StateRevoked State = "revoked"
)

// Agent is the data of agent.* events: what a Runner needs to find an agent, and to choose between
// agents.
type Agent struct {
	// ID is the agent's ID, a DNS label. It never changes.
	ID string `json:"id"`
	// Name is the cluster's name, as its owner chose it.
	Name string `json:"name"`
	// Labels are those by which Runners select agents.
	Labels map[string]string `json:"labels,omitempty"`
	// State is what the control plane knows about the agent's connection.
	State State `json:"state"`

	// Endpoints are equal ways to the same agent. Use whichever responds.
	Endpoints []Endpoint `json:"endpoints,omitempty"`

	// KubernetesVersion is the version of the cluster's API server.
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`
	// Distribution is the kind of Kubernetes, such as k3s or eks, if the agent recognizes it.
	Distribution string `json:"distribution,omitempty"`
	// Provider is the cloud of the nodes, such as aws, if the agent recognizes it.
	Provider string `json:"provider,omitempty"`
	// AgentVersion is the version of the agent's program.
	AgentVersion string `json:"agentVersion,omitempty"`
	// RunnerAPIVersion is the version of the Runner API that the agent serves.
	RunnerAPIVersion string `json:"runnerApiVersion,omitempty"`

	// Capacity is what the cluster has, and what is in use.
	Capacity Capacity `json:"capacity"`

	// Update is the state of the agent's self-update. It is absent if the cluster's owner has not
	// turned that on.
	Update *AgentUpdate `json:"update,omitempty"`

	// Components are the installed components of the cluster: ingress, metrics, logs and so on.
	Components []Component `json:"components,omitempty"`

	// Hosts are the public hosts that the agent registered at the gateway, the first 100 by name.
	// An App's publicUrls name those of that App.
	Hosts []string `json:"hosts,omitempty"`
	// Clones are other holders of this agent's identity that were seen lately.
	Clones []Clone `json:"clones,omitempty"`

	// RegisteredAt is the time of the agent's registration.
	RegisteredAt time.Time `json:"registeredAt,omitzero"`
	// LastSeen is the time of the last heartbeat.
	LastSeen time.Time `json:"lastSeen,omitzero"`

	// Sequence is that of the agent's last event at that time, App events included. The next event
	// has it as its previous.
	Sequence uint64 `json:"sequence"`
}

// AgentUpdate is an agent's update of itself to a release that the control plane offers.
type AgentUpdate struct {
	// State is where the update stands.
	State string `json:"state"`
	// From is the version before the update.
	From string `json:"from,omitempty"`
	// To is the offered version.
	To string `json:"to,omitempty"`
	// Reason is why the agent waits, or why the update failed or was refused.
	Reason string `json:"reason,omitempty"`
}

// Component is the state of an installed component of the cluster.
type Component struct {
	// Name is the component's name, such as prometheus.
	Name string `json:"name"`
	// Version is the version of its chart.
	Version string `json:"version,omitempty"`
	// Ready reports whether all its workloads are ready.
	Ready bool `json:"ready"`
	// Cause is the first cause for which it is not ready. It is absent while it starts.
	Cause string `json:"cause,omitempty"`
	// Message explains the cause.
	Message string `json:"message,omitempty"`
}

// String describes the component in a line.
func (c Component) String() string {
	text := strings.TrimSpace(c.Name + " " + c.Version)
	switch {
	case c.Ready:
		return text + ": ready"
	case c.Cause == "":
		return text + ": starting: " + c.Message
	}
	return text + ": " + c.Cause + ": " + c.Message
}

// MaxHosts bounds how many hosts of an agent are announced.
const MaxHosts = 100

// Endpoint is where a Runner reaches an agent's Runner API.
type Endpoint struct {
	// Address is the host:port of the control plane's edge, to connect to.
	Address string `json:"address"`
	// ServerName is the name to send in SNI, and the name in the agent's certificate:
	// AGENT_ID.AGENTS_DOMAIN.
	ServerName string `json:"serverName"`
}

// Capacity is what the agent's cluster has (allocatable) and what is in use.
type Capacity struct {
	// Nodes is the number of nodes.
	Nodes int `json:"nodes"`
	// Pods is the number of pods that the nodes can run.
	Pods int `json:"pods"`
	// RunningPods is the number of pods that run.
	RunningPods int `json:"runningPods"`
	// CPUMillis is the CPU for pods, in thousandths of a core.
	CPUMillis int64 `json:"cpuMillis"`
	// MemoryBytes is the memory for pods, in bytes.
	MemoryBytes int64 `json:"memoryBytes"`

	// UsedCPUMillis is the CPU in use, in thousandths of a core. It is absent if the cluster has no
	// metrics.
	UsedCPUMillis *int64 `json:"usedCpuMillis,omitempty"`
	// UsedMemoryBytes is the memory in use, in bytes. It is absent if the cluster has no metrics.
	UsedMemoryBytes *int64 `json:"usedMemoryBytes,omitempty"`
}

// Validate reports the first field that an agent cannot be announced with.
func (a *Agent) Validate() error {
	if err := checkAgentID(a.ID); err != nil {
		return fmt.Errorf("id: %w", err)
	}
	if strings.TrimSpace(a.Name) == "" {
		return fmt.Errorf("name: must not be empty")
	}
	switch a.State {
	case StatePending, StateOnline, StateOffline, StateRevoked:
	default:
		return fmt.Errorf("state: %q is none of pending, online, offline, revoked", printable.Clip(string(a.State)))
	}
	for i, e := range a.Endpoints {
		if e.Address == "" || e.ServerName == "" {
			return fmt.Errorf("endpoints[%d]: address and serverName must be set", i)
		}
	}
	return nil
}

// maxAgentID is the longest DNS label: the ID is the first label of the name
// that the agent's certificate is for.
const maxAgentID = 63

func checkAgentID(id string) error {
	if id == "" {
		return fmt.Errorf("must not be empty")
	}
	if len(id) > maxAgentID {
		return fmt.Errorf("has %d characters, at most %d are allowed", len(id), maxAgentID)
	}
	for _, r := range id {
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' {
			return fmt.Errorf("%q may hold only a-z, 0-9 and '-'", printable.Clip(id))
		}
	}
	return nil
}
