package runnerapi

import "time"

// RestartTrigger is a kind of object whose new content restarts an App.
type RestartTrigger string

// The triggers that there are.
const (
	RestartOnSecrets    RestartTrigger = "secrets"
	RestartOnConfigMaps RestartTrigger = "configMaps"
)

// SizingMode is what the agent does about an App's requests.
type SizingMode string

// The modes of right-sizing.
const (
	SizingOff       SizingMode = "off"       // told when asked, of two days at most
	SizingRecommend SizingMode = "recommend" // a week is kept, and told
	SizingApply     SizingMode = "apply"     // a week is kept, told, and applied within the bounds
)

// RightSizing fits an App's requests to what it really uses.
//
// +kubebuilder:object:generate=true
type RightSizing struct {
	Mode   SizingMode   `json:"mode,omitempty" enum:"off,recommend,apply" default:"off" doc:"recommend keeps a week of measurements over restarts of the agent, for what would fit; apply sets it, in place where Kubernetes can, never during a rollout. With off the metrics call tells what would fit by what the agent has in memory."`
	CPU    CPUBounds    `json:"cpu,omitzero" doc:"Bounds of the CPU request."`
	Memory MemoryBounds `json:"memory,omitzero" doc:"Bounds of the memory request."`
}

// CPUBounds keep a recommendation within what the owner knows to be right.
//
// +kubebuilder:object:generate=true
type CPUBounds struct {
	Min string `json:"min,omitempty" maxLength:"32" pattern:"^[0-9]+(\\.[0-9]+)?m?$" example:"50m"`
	Max string `json:"max,omitempty" maxLength:"32" pattern:"^[0-9]+(\\.[0-9]+)?m?$" example:"2"`
}

// MemoryBounds are CPUBounds of memory.
//
// +kubebuilder:object:generate=true
type MemoryBounds struct {
	Min string `json:"min,omitempty" maxLength:"32" pattern:"^[0-9]+(\\.[0-9]+)?(k|Ki|M|Mi|G|Gi|T|Ti)?$" example:"64Mi"`
	Max string `json:"max,omitempty" maxLength:"32" pattern:"^[0-9]+(\\.[0-9]+)?(k|Ki|M|Mi|G|Gi|T|Ti)?$" example:"1Gi"`
}

// mode returns the requested mode; the default does nothing.
func (r *RightSizing) mode() SizingMode {
	if r == nil || r.Mode == "" {
		return SizingOff
	}
	return r.Mode
}

// Sizing returns the App's mode of right-sizing.
func (s AppSpec) Sizing() SizingMode { return s.RightSizing.mode() }

func (v *validation) rightSizing(r *RightSizing) {
	if r == nil {
		return
	}
	v.bounds("rightSizing.cpu", r.CPU.Min, r.CPU.Max)
	v.bounds("rightSizing.memory", r.Memory.Min, r.Memory.Max)
}

func (v *validation) bounds(field, least, most string) {
	lo, okLo := v.quantity(field+".min", least)
	hi, okHi := v.quantity(field+".max", most)
	if okLo && okHi && lo.Cmp(hi) > 0 {
		v.add(field+".min", "the least %s is more than the most %s", least, most)
	}
}

// AppMetrics is what an App uses against what it asks for.
type AppMetrics struct {
	Namespace  string             `json:"namespace"`
	Name       string             `json:"name"`
	Containers []ContainerMetrics `json:"containers" nullable:"false" doc:"Each container over all pods."`
	Pods       []PodMetrics       `json:"pods" nullable:"false" doc:"Each pod that metrics-server has figures of."`
	Sizing     SizingMetrics      `json:"rightSizing" doc:"What would fit."`
	VPA        *VPAMetrics        `json:"vpa,omitempty" doc:"What a VerticalPodAutoscaler of the App recommends; absent without one, and without the components vpa and prometheus."`
}

// VPAMetrics is what a VerticalPodAutoscaler recommends for an App.
type VPAMetrics struct {
	Name       string              `json:"name" doc:"Of the VerticalPodAutoscaler."`
	Mode       string              `json:"mode,omitempty" doc:"Its updateMode. It has to be Off if the agent sizes the App." example:"Off"`
	Containers []VPARecommendation `json:"containers" nullable:"false"`
}

// VPARecommendation is the request that a VerticalPodAutoscaler recommends for a container.
type VPARecommendation struct {
	Name   string `json:"name"`
	CPU    *int64 `json:"cpu,omitempty" doc:"In thousandths of a core."`
	Memory *int64 `json:"memory,omitempty" doc:"In bytes."`
}

// ContainerMetrics sums up a container over all pods of an App.
type ContainerMetrics struct {
	Name   string      `json:"name"`
	Pods   int         `json:"pods" doc:"Pods that figures are there of."`
	CPU    UsageFigure `json:"cpu" doc:"In thousandths of a core."`
	Memory UsageFigure `json:"memory" doc:"In bytes."`
}

// UsageFigure is use against request and limit, per pod. Request and limit are
// absent where the container has none, and the highest where pods differ.
type UsageFigure struct {
	Average int64  `json:"average" doc:"Used by a pod on average."`
	Highest int64  `json:"highest" doc:"Used by the pod that uses most."`
	Request *int64 `json:"request,omitempty" doc:"Asked for by a pod."`
	Limit   *int64 `json:"limit,omitempty" doc:"Allowed to a pod."`
}

// PodMetrics is what one pod uses.
type PodMetrics struct {
	Pod        string         `json:"pod"`
	Time       time.Time      `json:"time,omitzero" doc:"When it was measured."`
	Window     string         `json:"window,omitempty" doc:"Over how long it was measured." example:"15s"`
	Containers []ContainerUse `json:"containers" nullable:"false"`
}

// ContainerUse is what one container of one pod uses.
type ContainerUse struct {
	Name   string   `json:"name"`
	CPU    UseOfPod `json:"cpu" doc:"In thousandths of a core."`
	Memory UseOfPod `json:"memory" doc:"In bytes."`
}

// UseOfPod is use against request and limit.
type UseOfPod struct {
	Used    int64  `json:"used"`
	Request *int64 `json:"request,omitempty"`
	Limit   *int64 `json:"limit,omitempty"`
}

// SizingMetrics is the recommendation and what became of it.
type SizingMetrics struct {
	Mode       SizingMode       `json:"mode" enum:"off,recommend,apply"`
	Containers []Recommendation `json:"containers" nullable:"false" doc:"One for each container that was measured."`
	AppliedAt  *time.Time       `json:"appliedAt,omitempty" doc:"When a recommendation was last applied."`
	AppliedBy  string           `json:"appliedBy,omitempty" enum:"Resize,Rollout" doc:"Resize: in place, without a restart. Rollout: by a new pod template."`
	Waiting    string           `json:"waiting,omitempty" doc:"Why nothing is applied now, where it could be."`
}

// Recommendation is what would fit one container, and the figures it stands on.
type Recommendation struct {
	Name    string    `json:"name"`
	Samples int64     `json:"samples" doc:"Measurements in the window; each pod's counts."`
	Since   time.Time `json:"since,omitzero" doc:"Oldest measurement in the window."`
	CPU     Fit       `json:"cpu" doc:"In thousandths of a core."`
	Memory  Fit       `json:"memory" doc:"In bytes."`
}

// Fit is the recommended request of one resource.
type Fit struct {
	Peak    int64  `json:"peak" doc:"Most that any pod used."`
	P95     int64  `json:"p95" doc:"What 95 of 100 measurements stay under."`
	Margin  int64  `json:"marginPercent" doc:"Safety margin put on top."`
	Basis   string `json:"basis" enum:"p95,peak" doc:"The figure it stands on: CPU can wait, memory cannot."`
	Request int64  `json:"request" doc:"Recommended request."`
	Bound   string `json:"bound,omitempty" enum:"floor,min,max,limit" doc:"What the request was raised or lowered to, where the figures alone say otherwise."`
	Applied *int64 `json:"applied,omitempty" doc:"Request that is applied now."`
}
