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

// Agent is all that a Runner needs to find an agent and to choose between agents.
type Agent struct {
	ID     string            `json:"id"`
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
	State  State             `json:"state"`

	// Endpoints are equal ways to the same agent; use whichever answers.
	Endpoints []Endpoint `json:"endpoints,omitempty"`

	KubernetesVersion string `json:"kubernetesVersion,omitempty"`
	Distribution      string `json:"distribution,omitempty"`
	Provider          string `json:"provider,omitempty"`
	AgentVersion      string `json:"agentVersion,omitempty"`
	RunnerAPIVersion  string `json:"runnerApiVersion,omitempty"`

	Capacity Capacity `json:"capacity"`

	// Update is how the agent's update of itself stands; nil where the customer has
	// not turned that on.
	Update *AgentUpdate `json:"update,omitempty"`

	// Components are the installed components of the cluster: ingress, metrics, logs and so on.
	Components []Component `json:"components,omitempty"`

	// Hosts are the public hosts that the agent's Apps have in their Ingresses, the
	// first MaxHosts by name; none where the customer has not turned ingress sync on.
	// The control plane carries no traffic to them. At which of them an App is, the
	// App says (publicUrls).
	Hosts []string `json:"hosts,omitempty"`
	// Clones were seen with this agent's identity lately and are not it.
	Clones []Clone `json:"clones,omitempty"`

	RegisteredAt time.Time `json:"registeredAt,omitzero"`
	LastSeen     time.Time `json:"lastSeen,omitzero"`

	// Sequence is that of the last event announced for this agent when this was
	// written, app events included: the next event carries Sequence+1.
	Sequence uint64 `json:"sequence"`
}

// AgentUpdate is an agent's update of itself to a release that the control plane
// offers.
type AgentUpdate struct {
	State  string `json:"state"` // idle, waiting, updating, done, failed or refused
	From   string `json:"from,omitempty"`
	To     string `json:"to,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// Component is how an installed component of the cluster is.
type Component struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	Ready   bool   `json:"ready"`
	// Cause is the first by which it is not ready; empty while it only starts.
	Cause   string `json:"cause,omitempty"`
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
	// Address is the host:port of the control plane's edge to dial.
	Address string `json:"address"`
	// ServerName is what to ask for (SNI) and what the agent's certificate must
	// be for: AGENT_ID.AGENTS_DOMAIN.
	ServerName string `json:"serverName"`
}

// Capacity is what the agent's cluster has (allocatable) and what is in use.
type Capacity struct {
	Nodes       int   `json:"nodes"`
	Pods        int   `json:"pods"`
	RunningPods int   `json:"runningPods"`
	CPUMillis   int64 `json:"cpuMillis"`
	MemoryBytes int64 `json:"memoryBytes"`

	// UsedCPUMillis and UsedMemoryBytes are nil where the cluster has no metrics:
	// unknown, not zero.
	UsedCPUMillis   *int64 `json:"usedCpuMillis,omitempty"`
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
