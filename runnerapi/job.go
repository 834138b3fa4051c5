package runnerapi

import "time"

// Job is a workload that runs to its end. It is an App of type Job under other field names: both
// are the same object in the cluster, so everything documented for Apps holds for it.
type Job struct {
	Namespace  string    `json:"namespace" doc:"Kubernetes namespace the Job lives in."`
	Name       string    `json:"name" doc:"Name of the Job; no App has the same."`
	Generation int64     `json:"generation" doc:"Counts changes of the spec; 1 for a new Job."`
	CreatedAt  time.Time `json:"createdAt,omitzero"`
	Spec       JobSpec   `json:"spec"`
	Status     JobStatus `json:"status"`

	UID       string   `json:"uid,omitempty" doc:"Tells the Job from an earlier one of its name."`
	Operation string   `json:"operation,omitempty" doc:"In the answer to a command: the operation's ID, for GET /v1/operations/{id}."`
	Outcome   *Outcome `json:"outcome,omitempty" doc:"In the answer to a command that waited: what became of this command, also where a later change of the Job came since."`
}

// JobList is a page of Jobs.
type JobList struct {
	Items []Job `json:"items" nullable:"false" doc:"Ordered by name."`
	Page
}

// JobSpec describes what a Job runs. Putting the same spec again changes nothing. Putting another
// spec, or the same spec with another run name, removes what is left of the run before and runs the
// Job again.
type JobSpec struct {
	Image   string   `json:"image" minLength:"1" maxLength:"512" pattern:"^[^\\s]+$" doc:"Container image reference." example:"registry.example.com/shop/web:1.4.2"`
	Command []string `json:"command,omitempty" maxItems:"64" doc:"Replaces the image's entrypoint."`
	Args    []string `json:"args,omitempty" maxItems:"256" doc:"Replaces the image's arguments."`
	Run     string   `json:"run,omitempty" maxLength:"128" pattern:"^[A-Za-z0-9._:-]+$" doc:"Names the run. Under another name the same spec runs again; under the same it does not." example:"build-1742"`

	Retries         *int32 `json:"retries,omitempty" minimum:"0" maximum:"100" doc:"How often a failed pod is tried again, ever later; 3 when absent."`
	DeadlineSeconds *int64 `json:"deadlineSeconds,omitempty" minimum:"1" maximum:"2592000" doc:"When all tries together are given up."`
	TTLSeconds      *int32 `json:"ttlSeconds,omitempty" minimum:"0" maximum:"31536000" doc:"When the pods of the finished Job are deleted, and their logs with them. The outcome stays. Kept when absent."`
	Completions     int32  `json:"completions,omitempty" minimum:"1" maximum:"10000" doc:"Pods that have to succeed; 1 when absent."`
	Parallelism     int32  `json:"parallelism,omitempty" minimum:"1" maximum:"1000" doc:"Pods at a time; 1 when absent."`

	Surroundings
	InitContainers []InitContainer `json:"initContainers,omitempty" maxItems:"8" doc:"Run to their end, one after the other, before the Job's own container starts."`
	Resources      Resources       `json:"resources,omitzero" doc:"CPU and memory that each pod asks for and is limited to."`
}

// Surroundings is the environment of pods. Each Job has its own; the jobs of a Pipeline share one.
type Surroundings struct {
	Env              []EnvVar          `json:"env,omitempty" maxItems:"512" doc:"Environment variables."`
	EnvFrom          []EnvSource       `json:"envFrom,omitempty" maxItems:"64" doc:"Secrets and config maps whose keys all become environment variables."`
	Files            []File            `json:"files,omitempty" maxItems:"32" doc:"Files from secrets and config maps."`
	Volumes          []Volume          `json:"volumes,omitempty" maxItems:"16" doc:"Directories that outlive the container, or the pod."`
	ImagePullSecrets []string          `json:"imagePullSecrets,omitempty" maxItems:"16" doc:"Names of dockerconfigjson secrets to pull the images with."`
	Security         *Security         `json:"security,omitempty" doc:"Loosens what pods are held to: Kubernetes' restricted pod security."`
	ServiceAccount   *ServiceAccount   `json:"serviceAccount,omitempty" doc:"Who the pods are to the Kubernetes API. By default they have no token."`
	NodeSelector     map[string]string `json:"nodeSelector,omitempty" maxProperties:"16" doc:"Labels of the nodes on which the pods may run."`
	Tolerations      []Toleration      `json:"tolerations,omitempty" maxItems:"16" doc:"Taints that do not keep the pods from a node."`
	PriorityClass    string            `json:"priorityClassName,omitempty" maxLength:"253" pattern:"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$" doc:"PriorityClass of the cluster, which says whose pods get room first."`
	GraceSeconds     *int64            `json:"terminationGraceSeconds,omitempty" minimum:"0" maximum:"86400" doc:"Seconds from SIGTERM to SIGKILL; 30 when absent."`
	Patches          []Patch           `json:"patches,omitempty" maxItems:"8" doc:"Changes of the Kubernetes Jobs, for what the other fields cannot express. The policy has to allow these objects as manifests, too."`

	PodLabels      map[string]string `json:"podLabels,omitempty" maxProperties:"32" doc:"Labels of the pods, beside the agent's own."`
	PodAnnotations map[string]string `json:"podAnnotations,omitempty" maxProperties:"32" doc:"Annotations of the pods."`
}

func (s Surroundings) into(a *AppSpec) {
	a.Env, a.EnvFrom, a.Files, a.Volumes, a.ImagePullSecrets = s.Env, s.EnvFrom, s.Files, s.Volumes, s.ImagePullSecrets
	a.Security, a.ServiceAccount, a.GraceSeconds = s.Security, s.ServiceAccount, s.GraceSeconds
	a.NodeSelector, a.Tolerations, a.PriorityClass = s.NodeSelector, s.Tolerations, s.PriorityClass
	a.PodLabels, a.PodAnnotations, a.Patches = s.PodLabels, s.PodAnnotations, s.Patches
}

func surroundingsOf(a AppSpec) Surroundings {
	return Surroundings{
		Env: a.Env, EnvFrom: a.EnvFrom, Files: a.Files, Volumes: a.Volumes, ImagePullSecrets: a.ImagePullSecrets,
		Security: a.Security, ServiceAccount: a.ServiceAccount, GraceSeconds: a.GraceSeconds,
		NodeSelector: a.NodeSelector, Tolerations: a.Tolerations, PriorityClass: a.PriorityClass,
		PodLabels: a.PodLabels, PodAnnotations: a.PodAnnotations, Patches: a.Patches,
	}
}

// AppSpec returns the spec of the App that implements the Job.
func (s JobSpec) AppSpec() AppSpec {
	a := AppSpec{Type: TypeJob, Image: s.Image, Command: s.Command, Args: s.Args, InitContainers: s.InitContainers, Resources: s.Resources}
	s.into(&a)
	o := JobOptions{
		Retries: s.Retries, DeadlineSeconds: s.DeadlineSeconds, TTLSeconds: s.TTLSeconds,
		Completions: s.Completions, Parallelism: s.Parallelism, Run: s.Run,
	}
	if o != (JobOptions{}) {
		a.Job = &o
	}
	return a
}

// Validate returns what is wrong with a spec beyond what its struct tags can express, with the
// field names of a Job.
func (s JobSpec) Validate() []FieldError { return inJobsWords(s.AppSpec().Validate()) }

// JobState is the state of a Job, a Pipeline, or one of a Pipeline's jobs.
type JobState string

// The states. Succeeded, Failed and NotRun are for good, unless it is run again.
const (
	JobWaiting   JobState = "Waiting"   // it has not begun
	JobRunning   JobState = "Running"   // it runs, or is tried again, after what Diagnosis says
	JobBlocked   JobState = "Blocked"   // it cannot go on, and Diagnosis says why; it does by itself when that is fixed
	JobSucceeded JobState = "Succeeded" // it came to its end
	JobFailed    JobState = "Failed"    // it was given up, and Diagnosis says why
	JobNotRun    JobState = "NotRun"    // a job before it in its Pipeline failed
	JobDeleting  JobState = "Deleting"  // it was deleted, and WaitingFor says what keeps it
)

// Ended reports whether the state is final.
func (s JobState) Ended() bool { return s == JobSucceeded || s == JobFailed || s == JobNotRun }

// JobStatus is the observed status of a Job.
type JobStatus struct {
	State              JobState   `json:"state" enum:"Waiting,Running,Blocked,Succeeded,Failed,Deleting" doc:"Blocked: it cannot continue until the diagnosed cause is fixed; its deadline ends it too."`
	ObservedGeneration int64      `json:"observedGeneration,omitempty" doc:"Generation of the spec that this status speaks of."`
	StartedAt          *time.Time `json:"startedAt,omitempty"`
	FinishedAt         *time.Time `json:"finishedAt,omitempty"`
	Tries              int32      `json:"tries,omitempty" doc:"Pods that have come to their end so far, or run now."`
	ExitCode           *int32     `json:"exitCode,omitempty" doc:"Of the container that ended last."`
	Diagnosis          *Diagnosis `json:"diagnosis,omitempty" doc:"What is wrong, when something is, with the last lines of the log."`
	WaitingFor         string     `json:"waitingFor,omitempty" doc:"What has to happen before the Job continues, while nothing is known to be wrong; or before a deleted one is gone."`
	LastLines          []string   `json:"lastLines,omitempty" doc:"Last lines of the init container that waitingFor names."`
}

// Settled reports whether the Job's newest spec has run to its end or cannot go on.
func (j Job) Settled() bool {
	return j.Status.ObservedGeneration >= j.Generation && (j.Status.State.Ended() || j.Status.State == JobBlocked)
}

// JobOf returns the Job that an App of type Job represents.
func JobOf(a App) Job {
	o := JobOptions{}
	if a.Spec.Job != nil {
		o = *a.Spec.Job
	}
	j := Job{
		Namespace: a.Namespace, Name: a.Name, Generation: a.Generation, CreatedAt: a.CreatedAt, UID: a.UID, Operation: a.Operation, Outcome: a.Outcome,
		Spec: JobSpec{
			Image: a.Spec.Image, Command: a.Spec.Command, Args: a.Spec.Args, Run: o.Run,
			Retries: o.Retries, DeadlineSeconds: o.DeadlineSeconds, TTLSeconds: o.TTLSeconds,
			Completions: o.Completions, Parallelism: o.Parallelism,
			Surroundings: surroundingsOf(a.Spec), InitContainers: a.Spec.InitContainers, Resources: a.Spec.Resources,
		},
		Status: JobStatus{State: JobWaiting, ObservedGeneration: a.Status.ObservedGeneration, Diagnosis: a.Status.Diagnosis},
	}
	observed := a.Status.ObservedGeneration >= a.Generation
	if s := &j.Status; observed && len(a.Status.Runs) > 0 {
		run := a.Status.Runs[0]
		s.State, s.StartedAt, s.FinishedAt = JobState(run.Outcome), &run.StartedAt, run.FinishedAt
		s.Tries, s.ExitCode = run.Tries, run.ExitCode
	}
	if observed && !j.Status.State.Ended() && a.Status.Diagnosis != nil && !a.Status.Diagnosis.Cause.Retried() {
		j.Status.State = JobBlocked
	}
	j.Status.WaitingFor, j.Status.LastLines = a.Status.WaitingFor, a.Status.LastLines
	if a.Status.Phase == PhaseDeleting {
		j.Status.State = JobDeleting
	}
	return j
}
