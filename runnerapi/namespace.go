package runnerapi

import (
	"fmt"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/printable"
)

// NamespaceSpec is the desired state of a managed namespace. A quota or default limits that it does
// not name are removed.
type NamespaceSpec struct {
	Labels  map[string]string  `json:"labels,omitempty" doc:"Labels to put on the namespace."`
	Adopt   bool               `json:"adopt,omitempty" doc:"Take over a namespace that exists and was not created by the agent. The agent never deletes such a one."`
	Quota   *NamespaceQuota    `json:"quota,omitempty" doc:"Bounds of all that is in the namespace together."`
	Limits  *NamespaceDefaults `json:"defaultLimits,omitempty" doc:"What a container gets that names none of its own."`
	Network *NamespaceNetwork  `json:"network,omitempty" doc:"Who may reach the pods. Unless given, a namespace that the agent made is isolated and an adopted one is open."`
}

// NamespaceQuota bounds all that is in a namespace together.
type NamespaceQuota struct {
	Requests ResourceAmounts `json:"requests,omitzero" doc:"Sum of all requests."`
	Limits   ResourceAmounts `json:"limits,omitzero" doc:"Sum of all limits. A container without a limit of its own needs one by defaultLimits."`
	Pods     *int32          `json:"pods,omitempty" minimum:"0" maximum:"100000" doc:"Number of pods."`
	Storage  string          `json:"storage,omitempty" maxLength:"32" pattern:"^[0-9]+(\\.[0-9]+)?(k|Ki|M|Mi|G|Gi|T|Ti)?$" doc:"Sum of all volume claims." example:"50Gi"`
}

// NamespaceDefaults apply to containers that set no resources of their own.
type NamespaceDefaults struct {
	Requests ResourceAmounts `json:"requests,omitzero"`
	Limits   ResourceAmounts `json:"limits,omitzero"`
}

// NetworkMode describes who may reach the pods of a namespace.
type NetworkMode string

// The modes of a namespace's default network policy.
const (
	// NetworkIsolated lets in the same namespace, the well-known namespaces of
	// ingress controllers, namespaces labelled pipeops.io/ingress=allowed, and
	// those named in AllowFrom.
	NetworkIsolated NetworkMode = "isolated"
	// NetworkOpen means that the agent maintains no policy. When read, it means that there is none.
	NetworkOpen NetworkMode = "open"
)

// NamespaceNetwork is the default network policy. It is about what comes in;
// what goes out is free.
type NamespaceNetwork struct {
	Mode      NetworkMode `json:"mode,omitempty" enum:"isolated,open" default:"isolated" doc:"isolated: from the same namespace, from ingress controllers, from the agent and from allowFrom. open: from everywhere."`
	AllowFrom []string    `json:"allowFrom,omitempty" maxItems:"64" doc:"Further namespaces that may reach the pods."`
}

// Namespace is a Kubernetes namespace that the agent manages.
type Namespace struct {
	Name      string             `json:"name"`
	Labels    map[string]string  `json:"labels,omitempty"`
	Phase     string             `json:"phase" doc:"Kubernetes' phase: Active or Terminating."`
	Apps      int                `json:"apps" doc:"Number of Apps in it."`
	CreatedAt time.Time          `json:"createdAt,omitzero"`
	Quota     *NamespaceQuota    `json:"quota,omitempty" doc:"Not in a list."`
	Used      *NamespaceQuota    `json:"used,omitempty" doc:"What of the quota is used. Not in a list."`
	Limits    *NamespaceDefaults `json:"defaultLimits,omitempty" doc:"Not in a list."`
	Network   *NamespaceNetwork  `json:"network,omitempty" doc:"Which traffic may reach the pods, by the agent's own NetworkPolicy. open: no NetworkPolicy isolates them. Absent in a list, where only NetworkPolicies of others isolate them (networkPolicies), and where the agent cannot read NetworkPolicies."`

	NetworkPolicies []string `json:"networkPolicies,omitempty" doc:"NetworkPolicies of others that isolate pods of the namespace. Not in a list."`
}

// NamespaceList is all managed namespaces.
type NamespaceList struct {
	Items []Namespace `json:"items" nullable:"false"`
	Page
}

// Validate returns what is wrong with a spec beyond what its struct tags can express.
func (s NamespaceSpec) Validate() []FieldError {
	v := &validation{}
	if q := s.Quota; q != nil {
		v.resources("quota", Resources{Requests: q.Requests, Limits: q.Limits})
		v.quantity("quota.storage", q.Storage)
		v.defaultsFor(q, s.Limits)
	}
	if s.Limits != nil {
		v.resources("defaultLimits", Resources{Requests: s.Limits.Requests, Limits: s.Limits.Limits})
	}
	if s.Network != nil {
		for i, name := range s.Network.AllowFrom {
			if len(name) > maxLabel || !label.MatchString(name) {
				v.add(fmt.Sprintf("network.allowFrom[%d]", i), "%q is not a namespace's name", printable.Clip(name))
			}
		}
		if s.Network.Mode == NetworkOpen && len(s.Network.AllowFrom) > 0 {
			v.add("network.allowFrom", "everybody may come in already, the mode is open")
		}
	}
	return v.errs
}

// defaultsFor refuses a quota with which Kubernetes would refuse every App that has no limits of
// its own.
func (v *validation) defaultsFor(q *NamespaceQuota, defaults *NamespaceDefaults) {
	if defaults == nil {
		defaults = &NamespaceDefaults{}
	}
	if q.Limits.CPU != "" && defaults.Limits.CPU == "" {
		v.add("defaultLimits.limits.cpu", "a quota of limits refuses containers without a limit: give them a default")
	}
	if q.Limits.Memory != "" && defaults.Limits.Memory == "" {
		v.add("defaultLimits.limits.memory", "a quota of limits refuses containers without a limit: give them a default")
	}
}
