package runnerapi

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
	"time"
)

// PipelineJob is one job of a Pipeline.
//
// +kubebuilder:object:generate=true
type PipelineJob struct {
	Name            string      `json:"name" minLength:"1" maxLength:"40" pattern:"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$" doc:"Name of the job, unique in its Pipeline."`
	Image           string      `json:"image,omitempty" maxLength:"512" pattern:"^[^\\s]+$" doc:"The Pipeline's image when absent."`
	Command         []string    `json:"command,omitempty" maxItems:"64" doc:"Replaces the image's entrypoint."`
	Args            []string    `json:"args,omitempty" maxItems:"256" doc:"Replaces the image's arguments."`
	Env             []EnvVar    `json:"env,omitempty" maxItems:"64" doc:"Beside the Pipeline's variables, and over them."`
	EnvFrom         []EnvSource `json:"envFrom,omitempty" maxItems:"16" doc:"Beside the Pipeline's secrets and config maps."`
	Resources       Resources   `json:"resources,omitzero" doc:"CPU and memory that the job's pod asks for and is limited to; the Pipeline's when absent."`
	Retries         *int32      `json:"retries,omitempty" minimum:"0" maximum:"100" doc:"How often a failed pod is tried again, ever later; the Pipeline's when absent."`
	DeadlineSeconds *int64      `json:"deadlineSeconds,omitempty" minimum:"1" maximum:"2592000" doc:"When all tries of this job together are given up; the Pipeline's when absent."`
}

// JobResult is how one job of a Pipeline stands.
type JobResult struct {
	Name       string     `json:"name"`
	State      JobState   `json:"state" enum:"Waiting,Running,Blocked,Succeeded,Failed,NotRun" doc:"NotRun: a job before it failed."`
	StartedAt  *time.Time `json:"startedAt,omitempty"`
	FinishedAt *time.Time `json:"finishedAt,omitempty"`
	Tries      int32      `json:"tries,omitempty" doc:"Pods that have come to their end so far, or run now."`
	ExitCode   *int32     `json:"exitCode,omitempty" doc:"Of the container that ended last."`
	Diagnosis  *Diagnosis `json:"diagnosis,omitempty" doc:"What is wrong, when something is, with the last lines of the log."`
}

// Pipeline is an ordered list of jobs that stops at the first that fails. It is an App of type
// Pipeline under other field names.
type Pipeline struct {
	Namespace  string         `json:"namespace" doc:"Kubernetes namespace the Pipeline lives in."`
	Name       string         `json:"name" doc:"Name of the Pipeline; no App has the same."`
	Generation int64          `json:"generation" doc:"Counts changes of the spec; 1 for a new Pipeline."`
	CreatedAt  time.Time      `json:"createdAt,omitzero"`
	Spec       PipelineSpec   `json:"spec"`
	Status     PipelineStatus `json:"status"`

	UID       string   `json:"uid,omitempty" doc:"Tells the Pipeline from an earlier one of its name."`
	Operation string   `json:"operation,omitempty" doc:"In the answer to a command: the operation's ID, for GET /v1/operations/{id}."`
	Outcome   *Outcome `json:"outcome,omitempty" doc:"In the answer to a command that waited: what became of this command, also where a later change of the Pipeline came since."`
}

// PipelineList is a page of Pipelines.
type PipelineList struct {
	Items []Pipeline `json:"items" nullable:"false" doc:"Ordered by name."`
	Page
}

// PipelineSpec describes what a Pipeline runs. Putting the same spec again changes nothing. Putting
// another spec, or the same spec with another run name, removes what is left of the run before and
// runs the Pipeline from the first job.
type PipelineSpec struct {
	Jobs  []PipelineJob `json:"jobs" nullable:"false" minItems:"1" maxItems:"32" doc:"In their order. The first that fails ends the Pipeline."`
	Image string        `json:"image,omitempty" maxLength:"512" pattern:"^[^\\s]+$" doc:"Container image of the jobs that name none."`
	Run   string        `json:"run,omitempty" maxLength:"128" pattern:"^[A-Za-z0-9._:-]+$" doc:"Names the run. Under another name the same spec runs again; under the same it does not." example:"build-1742"`

	Retries         *int32 `json:"retries,omitempty" minimum:"0" maximum:"100" doc:"How often a failed pod of each job is tried again, ever later; 3 when absent."`
	DeadlineSeconds *int64 `json:"deadlineSeconds,omitempty" minimum:"1" maximum:"2592000" doc:"When each job is given up, with all its tries."`
	TTLSeconds      *int32 `json:"ttlSeconds,omitempty" minimum:"0" maximum:"31536000" doc:"When the pods of the finished Pipeline are deleted, and their logs with them. The outcome stays. Kept when absent."`

	Surroundings
	Resources Resources `json:"resources,omitzero" doc:"CPU and memory of jobs that say nothing themselves."`
}

// AppSpec returns the App that the Pipeline is.
func (s PipelineSpec) AppSpec() AppSpec {
	a := AppSpec{Type: TypePipeline, Image: s.Image, Jobs: s.Jobs, Resources: s.Resources}
	if a.Image == "" && len(s.Jobs) > 0 { // an App has one
		a.Image = s.Jobs[0].Image
	}
	s.into(&a)
	o := JobOptions{Retries: s.Retries, DeadlineSeconds: s.DeadlineSeconds, TTLSeconds: s.TTLSeconds, Run: s.Run}
	if o != (JobOptions{}) {
		a.Job = &o
	}
	return a
}

// Validate returns what is wrong with a spec beyond what its struct tags can express, with the
// field names of a Pipeline.
func (s PipelineSpec) Validate() []FieldError {
	v := &validation{}
	if s.Image == "" && slices.ContainsFunc(s.Jobs, func(j PipelineJob) bool { return j.Image == "" }) {
		v.add("image", "a job names no image, and neither does the Pipeline")
	}
	return append(v.errs, inJobsWords(s.AppSpec().Validate())...)
}

// inJobsWords names the fields at fault as Jobs and Pipelines have them.
func inJobsWords(errs []FieldError) []FieldError {
	for i := range errs {
		errs[i].Field = strings.TrimPrefix(errs[i].Field, "job.")
	}
	return errs
}

// JobSpec returns one of the jobs as a Job would have it, with the Pipeline's settings for those
// that the job leaves out.
func (a AppSpec) JobSpec(j PipelineJob) JobSpec {
	o := JobOptions{}
	if a.Job != nil {
		o = *a.Job
	}
	s := JobSpec{
		Image: cmp.Or(j.Image, a.Image), Command: j.Command, Args: j.Args, Run: o.Run,
		Retries: cmp.Or(j.Retries, o.Retries), DeadlineSeconds: cmp.Or(j.DeadlineSeconds, o.DeadlineSeconds),
		Surroundings: surroundingsOf(a), InitContainers: a.InitContainers, Resources: a.Resources,
	}
	s.Env = slices.Clone(s.Env)
	for _, e := range j.Env {
		s.Env = slices.DeleteFunc(s.Env, func(common EnvVar) bool { return common.Name == e.Name })
		s.Env = append(s.Env, e)
	}
	s.EnvFrom = slices.Concat(s.EnvFrom, j.EnvFrom)
	if !reflect.ValueOf(j.Resources).IsZero() {
		s.Resources = j.Resources
	}
	return s
}

// PipelineStatus is how a Pipeline stands.
type PipelineStatus struct {
	State              JobState    `json:"state" enum:"Waiting,Running,Blocked,Succeeded,Failed,Deleting" doc:"Blocked: the running job cannot continue until the diagnosed cause is fixed; its deadline ends it too."`
	ObservedGeneration int64       `json:"observedGeneration,omitempty" doc:"Generation of the spec that this status speaks of."`
	StartedAt          *time.Time  `json:"startedAt,omitempty"`
	FinishedAt         *time.Time  `json:"finishedAt,omitempty"`
	FailedJob          string      `json:"failedJob,omitempty" doc:"The job at which the Pipeline stopped."`
	Jobs               []JobResult `json:"jobs,omitempty" doc:"How each job stands, in their order."`
	Diagnosis          *Diagnosis  `json:"diagnosis,omitempty" doc:"What is wrong with the running job, or with the one that failed."`
	WaitingFor         string      `json:"waitingFor,omitempty" doc:"What has to happen before the Pipeline continues, while nothing is known to be wrong; or before a deleted one is gone."`
	LastLines          []string    `json:"lastLines,omitempty" doc:"Last lines of the init container that waitingFor names."`
}

// Settled reports whether the Pipeline's newest spec has come to its end, or cannot go on.
func (p Pipeline) Settled() bool {
	return p.Status.ObservedGeneration >= p.Generation && (p.Status.State.Ended() || p.Status.State == JobBlocked)
}

// PipelineOf returns an App of type Pipeline in a Pipeline's words.
func PipelineOf(a App) Pipeline {
	o := JobOptions{}
	if a.Spec.Job != nil {
		o = *a.Spec.Job
	}
	p := Pipeline{
		Namespace: a.Namespace, Name: a.Name, Generation: a.Generation, CreatedAt: a.CreatedAt, UID: a.UID, Operation: a.Operation, Outcome: a.Outcome,
		Spec: PipelineSpec{
			Jobs: a.Spec.Jobs, Image: a.Spec.Image, Run: o.Run, Retries: o.Retries, DeadlineSeconds: o.DeadlineSeconds, TTLSeconds: o.TTLSeconds,
			Surroundings: surroundingsOf(a.Spec), Resources: a.Spec.Resources,
		},
		Status: PipelineStatus{State: JobWaiting, ObservedGeneration: a.Status.ObservedGeneration},
	}
	if !slices.ContainsFunc(p.Spec.Jobs, func(j PipelineJob) bool { return j.Image == "" }) {
		p.Spec.Image = "" // that of no job
	}
	if a.Status.ObservedGeneration >= a.Generation {
		p.Status.Jobs, p.Status.Diagnosis = a.Status.Jobs, a.Status.Diagnosis
		p.Status.sum()
	}
	p.Status.WaitingFor, p.Status.LastLines = a.Status.WaitingFor, a.Status.LastLines
	if a.Status.Phase == PhaseDeleting {
		p.Status.State = JobDeleting
	}
	return p
}

// sum derives the Pipeline's state from the jobs' states.
func (s *PipelineStatus) sum() {
	all := true
	for _, j := range s.Jobs {
		if s.StartedAt == nil {
			s.StartedAt = j.StartedAt
		}
		if j.StartedAt != nil {
			s.State = JobRunning
		}
		all = all && j.State == JobSucceeded
		switch j.State {
		case JobFailed:
			s.State, s.FailedJob, s.FinishedAt = JobFailed, j.Name, j.FinishedAt
			return
		case JobBlocked:
			s.State = JobBlocked
			return
		case JobSucceeded:
			s.FinishedAt = j.FinishedAt
		}
	}
	switch {
	case all && len(s.Jobs) > 0:
		s.State = JobSucceeded
		return
	case s.Diagnosis != nil: // before any job could be made
		s.State = JobBlocked
	}
	s.FinishedAt = nil
}
