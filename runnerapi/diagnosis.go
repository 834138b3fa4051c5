package runnerapi

import (
	"strings"
	"time"
)

// Cause names what is wrong with an App. The set is closed: scripts may
// switch on it.
type Cause string

// The causes that the agent distinguishes.
const (
	CauseImageNotFound     Cause = "ImageNotFound"
	CauseImagePullDenied   Cause = "ImagePullDenied"
	CauseImagePullFailed   Cause = "ImagePullFailed"
	CauseInvalidImage      Cause = "InvalidImageName"
	CauseCrashLoop         Cause = "CrashLoop"
	CauseOutOfMemory       Cause = "OutOfMemory"
	CauseBadCommand        Cause = "BadCommand"
	CauseRunsAsRoot        Cause = "RunsAsRoot"
	CauseUnschedulable     Cause = "Unschedulable"
	CauseProbeFailing      Cause = "ProbeFailing"
	CauseMissingSecret     Cause = "MissingSecret"
	CauseMissingConfigMap  Cause = "MissingConfigMap"
	CauseMissingKey        Cause = "MissingKey"
	CauseQuotaExceeded     Cause = "QuotaExceeded"
	CauseAdmissionRefused  Cause = "AdmissionRefused"
	CauseConflict          Cause = "Conflict"
	CauseInvalidSpec       Cause = "InvalidSpec"
	CauseDeadlinePassed    Cause = "DeadlinePassed"
	CauseJobFailed         Cause = "JobFailed"
	CauseVolumeNotBound    Cause = "VolumeNotBound"
	CausePortClash         Cause = "PortClash"
	CauseNodeLost          Cause = "NodeLost"
	CauseEvicted           Cause = "Evicted"
	CauseNeverDue          Cause = "NeverDue"
	CauseRunsSkipped       Cause = "RunsSkipped"
	CausePortNotListening  Cause = "PortNotListening"
	CauseAutoscalingFailed Cause = "AutoscalingFailed"
	CauseUnknown           Cause = "Unknown"
)

// Retried reports whether Kubernetes tries a run again of itself that is in such trouble.
func (c Cause) Retried() bool {
	switch c {
	case CauseCrashLoop, CauseOutOfMemory, CauseBadCommand, CauseProbeFailing, CauseImagePullFailed, CauseNodeLost, CauseEvicted, CausePortClash:
		return true
	}
	return false
}

// Diagnosis says what is wrong with an App in terms of its cause, and what to
// do about it.
//
// +kubebuilder:object:generate=true
type Diagnosis struct {
	Cause     Cause    `json:"cause" enum:"ImageNotFound,ImagePullDenied,ImagePullFailed,InvalidImageName,CrashLoop,OutOfMemory,BadCommand,RunsAsRoot,Unschedulable,ProbeFailing,MissingSecret,MissingConfigMap,MissingKey,QuotaExceeded,AdmissionRefused,Conflict,InvalidSpec,DeadlinePassed,JobFailed,VolumeNotBound,PortClash,NodeLost,Evicted,NeverDue,RunsSkipped,PortNotListening,AutoscalingFailed,Unknown" doc:"Stable name of the cause."`
	Message   string   `json:"message" doc:"What is wrong, with the names and figures that matter."`
	Fix       string   `json:"fix" doc:"What to do next."`
	Object    string   `json:"object,omitempty" doc:"The Kubernetes object the signal came from, as kind/name."`
	Container string   `json:"container,omitempty"`
	ExitCode  *int32   `json:"exitCode,omitempty" doc:"Exit code of the last run, where a container ended."`
	LastLines []string `json:"lastLines,omitempty" doc:"Last lines the container wrote before it ended."`
}

// Drift counts the foreign changes to an App's objects that the agent reverted, and describes the
// last one.
type Drift struct {
	Corrections int64     `json:"corrections" doc:"How often something was put back since the App was made."`
	LastAt      time.Time `json:"lastAt" doc:"When something was put back last."`
	Object      string    `json:"object" doc:"What was put back last, as kind/name."`
	Deleted     bool      `json:"deleted,omitempty" doc:"It had been deleted."`
	Fields      []string  `json:"fields,omitempty" doc:"Names of the fields that had another value, at most ten. Values are left out."`
}

// What describes in a few words what was reverted last.
func (d Drift) What() string {
	switch {
	case d.Deleted:
		return d.Object + " was deleted"
	case len(d.Fields) == 0:
		return d.Object + " was changed"
	}
	return d.Object + " was changed (" + strings.Join(d.Fields, ", ") + ")"
}
