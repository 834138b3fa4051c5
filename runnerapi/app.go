package runnerapi

import (
	"cmp"
	"fmt"
	"time"
)

// App is one application as the Runner sees it: what was asked for and what is
// there. In the cluster it is the custom resource apps.pipeops.io.
type App struct {
	Namespace string `json:"namespace" doc:"Kubernetes namespace the App lives in."`
	Name      string `json:"name" doc:"Name of the App, unique in its namespace."`
	// Generation counts changes of Spec. Status speaks of this spec only when
	// Status.ObservedGeneration has reached it.
	Generation int64     `json:"generation" doc:"Counts changes of the spec; 1 for a new App."`
	CreatedAt  time.Time `json:"createdAt,omitzero"`
	Spec       AppSpec   `json:"spec"`
	Status     AppStatus `json:"status"`

	UID         string   `json:"uid,omitempty" doc:"Tells the App from an earlier one of its name."`
	RestartedAt string   `json:"restartedAt,omitempty" doc:"When it was last asked to restart."`
	Operation   string   `json:"operation,omitempty" doc:"In the answer to a command: the operation's ID, for GET /v1/operations/{id}."`
	Outcome     *Outcome `json:"outcome,omitempty" doc:"In the answer to a command that waited: what became of this command, also where a later change of the App came since."`
}

// AppList is a page of Apps.
type AppList struct {
	Items []App `json:"items" nullable:"false" doc:"Ordered by namespace and name."`
	Page
}

// Settled reports whether the App's newest spec has reached an outcome: it is healthy, or the
// diagnosis explains what is wrong.
func (a App) Settled() bool {
	if a.Status.ObservedGeneration < a.Generation {
		return false
	}
	switch a.Status.Phase {
	case PhaseHealthy, PhaseFailed, PhasePaused:
		return true
	case PhaseDegraded:
		return a.Status.Diagnosis != nil
	}
	return false
}

// Ready returns how many of the desired pods are ready, as 2/3. More of them, which a rollout has
// for a moment, count as all. For an App that runs to its end it returns the outcome of the last
// run, and none before the first.
func (a App) Ready() string {
	switch {
	case a.Spec.Type.Runs() && len(a.Status.Runs) == 0:
		return "none"
	case a.Spec.Type.Runs():
		return string(a.Status.Runs[0].Outcome)
	}
	return fmt.Sprintf("%d/%d", min(a.Status.ReadyReplicas, a.desired()), a.desired())
}

// desired returns how many pods the App asks for. The agent may not have observed the spec yet.
func (a App) desired() int32 {
	switch {
	case !a.Spec.Type.Scales() || a.Spec.Autoscaling != nil:
		return a.Status.DesiredReplicas
	case a.Spec.Replicas != nil:
		return *a.Spec.Replicas
	}
	return 1
}

// StateStopped is the state of a healthy App that was scaled to no pods.
const StateStopped = "Stopped"

// State returns the phase for people, in which a healthy App without pods is stopped.
func (a App) State() string {
	if a.Status.Phase == PhaseHealthy && a.Spec.Type.Scales() && a.desired() == 0 {
		return StateStopped
	}
	return string(a.Status.Phase)
}

// AppType is the kind of workload an App becomes.
type AppType string

// The types of an App. The type of one that is there cannot change.
const (
	TypeDeployment  AppType = "Deployment"  // interchangeable pods, rolling updates
	TypeStatefulSet AppType = "StatefulSet" // pods with names and volumes of their own, one after the other
	TypeDaemonSet   AppType = "DaemonSet"   // one pod on each node
	TypeJob         AppType = "Job"         // runs to its end, once for each change of the spec
	TypeCronJob     AppType = "CronJob"     // runs to its end, on a schedule
	TypePipeline    AppType = "Pipeline"    // jobs that run to their end, one after the other
)

// Runs reports whether an App of this type comes to an end by itself.
func (t AppType) Runs() bool { return t == TypeJob || t == TypeCronJob || t == TypePipeline }

// Scales reports whether the number of pods of an App of this type can be set.
func (t AppType) Scales() bool { return t == "" || t == TypeDeployment || t == TypeStatefulSet }

// AppSpec is the desired state of an App. Its struct tags are the one source
// of the API's validation, of the OpenAPI document and of the CRD's schema.
//
// +kubebuilder:object:generate=true
type AppSpec struct {
	Type                 AppType           `json:"type,omitempty" enum:"Deployment,StatefulSet,DaemonSet,Job,CronJob,Pipeline" default:"Deployment" doc:"Kind of workload the App becomes. It cannot change later."`
	Image                string            `json:"image" minLength:"1" maxLength:"512" pattern:"^[^\\s]+$" doc:"Container image reference." example:"registry.example.com/shop/web:1.4.2"`
	Command              []string          `json:"command,omitempty" maxItems:"64" doc:"Replaces the image's entrypoint. $$ runs as $, and $(NAME) as a variable."`
	Args                 []string          `json:"args,omitempty" maxItems:"256" doc:"Replaces the image's arguments. $$ runs as $, and $(NAME) as a variable."`
	Replicas             *int32            `json:"replicas,omitempty" minimum:"0" maximum:"1000" doc:"Number of pods of a Deployment or StatefulSet; 1 for a new App when absent. Without autoscaling beside it, it turns autoscaling off. With autoscaling it says only whether to run at all: 0 stops the App."`
	Autoscaling          *Autoscaling      `json:"autoscaling,omitempty" doc:"Lets the load decide the number of pods of a Deployment or StatefulSet."`
	Schedule             *Schedule         `json:"schedule,omitempty" doc:"When a CronJob runs."`
	Job                  *JobOptions       `json:"job,omitempty" doc:"How a Job, each run of a CronJob, or each job of a Pipeline that does not say otherwise, is tried."`
	Jobs                 []PipelineJob     `json:"jobs,omitempty" maxItems:"32" doc:"The jobs of a Pipeline, in their order. The first that fails ends it. They have the App's environment, files and volumes."`
	Ports                []Port            `json:"ports,omitempty" maxItems:"32" doc:"Ports the container listens on. With at least one, the App gets a Service of its own name."`
	Metrics              *MetricsPort      `json:"metrics,omitempty" doc:"Where each pod serves metrics for Prometheus, which finds them by the annotations prometheus.io/scrape, port and path. The port needs no entry in ports."`
	Ingress              *Ingress          `json:"ingress,omitempty" doc:"How the App is reached from outside: by the control plane's gateway, or by the cluster's ingress controller."`
	Env                  []EnvVar          `json:"env,omitempty" maxItems:"512" doc:"Environment variables."`
	EnvFrom              []EnvSource       `json:"envFrom,omitempty" maxItems:"64" doc:"Secrets and config maps whose keys all become environment variables."`
	Files                []File            `json:"files,omitempty" maxItems:"32" doc:"Files from secrets and config maps."`
	Volumes              []Volume          `json:"volumes,omitempty" maxItems:"16" doc:"Directories that outlive a restart of the container, or the pod."`
	Resources            Resources         `json:"resources,omitzero" doc:"CPU and memory that each pod asks for and is limited to."`
	Probes               Probes            `json:"probes,omitzero" doc:"How Kubernetes finds out whether a pod has started, is ready, is alive."`
	InitContainers       []InitContainer   `json:"initContainers,omitempty" maxItems:"8" doc:"Run to their end, one after the other, before the App's own container starts. They have the App's environment, files and volumes."`
	ImagePullSecrets     []string          `json:"imagePullSecrets,omitempty" maxItems:"16" doc:"Names of dockerconfigjson secrets to pull the images with."`
	Paused               *bool             `json:"paused,omitempty" doc:"Leaves everything as it is until it is taken away again; nothing that was changed meanwhile is rolled out before."`
	Rollback             RollbackPolicy    `json:"rollback,omitempty" enum:"never,onFailure" doc:"What to do when a rollout fails: onFailure goes back, once, to the last revision that was healthy."`
	RevisionHistoryLimit *int32            `json:"revisionHistoryLimit,omitempty" minimum:"1" maximum:"100" doc:"How many revisions to keep for rollbacks; 10 when absent."`
	Update               *Update           `json:"update,omitempty" doc:"How new pods take the place of old ones. By default a Deployment never has fewer pods than asked for."`
	Disruption           *Disruption       `json:"disruption,omitempty" doc:"How many pods a node drain may take at a time."`
	Security             *Security         `json:"security,omitempty" doc:"Loosens what pods are held to. By default that is Kubernetes' restricted pod security; nothing here goes beyond its baseline level."`
	ServiceAccount       *ServiceAccount   `json:"serviceAccount,omitempty" doc:"Who the pods are to the Kubernetes API. By default they have no token."`
	Spread               *Spread           `json:"spread,omitempty" doc:"How pods are spread over the cluster. By default over nodes, where that is possible."`
	NodeSelector         map[string]string `json:"nodeSelector,omitempty" maxProperties:"16" doc:"Labels of the nodes on which the pods may run."`
	Tolerations          []Toleration      `json:"tolerations,omitempty" maxItems:"16" doc:"Taints that do not keep the pods from a node."`
	PriorityClass        string            `json:"priorityClassName,omitempty" maxLength:"253" pattern:"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$" doc:"PriorityClass of the cluster, which says whose pods get room first."`
	ProgressDeadline     *int32            `json:"progressDeadlineSeconds,omitempty" minimum:"10" maximum:"86400" doc:"When the rollout of a Deployment that gets no further has failed, in seconds; 600 when absent. What is plainly wrong is reported immediately."`
	GraceSeconds         *int64            `json:"terminationGraceSeconds,omitempty" minimum:"0" maximum:"86400" doc:"Seconds until SIGKILL, of which the pods of an App with an ingress serve on for three before SIGTERM; 30 when absent."`
	Patches              []Patch           `json:"patches,omitempty" maxItems:"8" doc:"Changes of the objects that the App becomes, for what its other fields cannot express. The policy has to allow these objects as manifests, too."`

	PodLabels      map[string]string `json:"podLabels,omitempty" maxProperties:"32" doc:"Labels of the pods, beside the agent's own."`
	PodAnnotations map[string]string `json:"podAnnotations,omitempty" maxProperties:"32" doc:"Annotations of the pods."`

	RestartOn   []RestartTrigger `json:"restartOn,omitempty" maxItems:"2" enum:"secrets,configMaps" doc:"Restarts the App when the content of a Secret or ConfigMap that it uses changes. Nothing does unless it is listed here."`
	RightSizing *RightSizing     `json:"rightSizing,omitempty" doc:"Fits the requests to what the App really uses."`
}

// IsPaused reports whether the App is paused.
func (s AppSpec) IsPaused() bool { return s.Paused != nil && *s.Paused }

// KeepUnnamed returns the spec with the scale and the pause that an App has, where the spec does
// not name them. Replicas and autoscaling are the scale: naming one of them names both, so
// that a number of pods turns autoscaling off.
func (s AppSpec) KeepUnnamed(has AppSpec) AppSpec {
	if s.Replicas == nil && s.Autoscaling == nil {
		s.Replicas, s.Autoscaling = has.Replicas, has.Autoscaling
	}
	if s.Paused == nil {
		s.Paused = has.Paused
	}
	if !s.IsPaused() {
		s.Paused = nil // the same spec again is not a change, in any form
	}
	return s
}

// Port is a port of the container and of the App's Service.
//
// +kubebuilder:object:generate=true
type Port struct {
	Name     string `json:"name,omitempty" maxLength:"15" pattern:"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$" doc:"Name of the port; needed when there is more than one."`
	Port     int32  `json:"port" minimum:"1" maximum:"65535" doc:"Port the container listens on."`
	Service  int32  `json:"service,omitempty" minimum:"1" maximum:"65535" doc:"Port of the Service; the container's port when absent."`
	Protocol string `json:"protocol,omitempty" enum:"TCP,UDP" default:"TCP"`
	Optional bool   `json:"optional,omitempty" doc:"The program may leave the port closed: without probes the agent tries all others."`
}

// ServicePort returns the port of the Service: the container's unless set.
func (p Port) ServicePort() int32 {
	return cmp.Or(p.Service, p.Port)
}

// UDPOnly reports whether the App declares a port for UDP and not for TCP.
func (s AppSpec) UDPOnly(port int32) bool {
	udp, tcp := false, false
	for _, p := range s.Ports {
		udp = udp || p.Port == port && p.Protocol == "UDP"
		tcp = tcp || p.Port == port && p.Protocol != "UDP"
	}
	return udp && !tcp
}

// EnvVar is an environment variable: a value, or a key of a Secret or
// ConfigMap. Exactly one of Value, Secret and ConfigMap may be set.
//
// +kubebuilder:object:generate=true
type EnvVar struct {
	Name      string  `json:"name" minLength:"1" maxLength:"253" pattern:"^[A-Za-z_.-][A-Za-z0-9_.-]*$"`
	Value     string  `json:"value,omitempty" maxLength:"32768" doc:"Plain value, in which $$ runs as $ and $(NAME) as a variable. Put secret values into a Secret instead: a spec can be read back."`
	Secret    *KeyRef `json:"secret,omitempty" doc:"Takes the value from a key of a Secret."`
	ConfigMap *KeyRef `json:"configMap,omitempty" doc:"Takes the value from a key of a ConfigMap."`
}

// KeyRef names a key of a Secret or ConfigMap in the App's namespace.
//
// +kubebuilder:object:generate=true
type KeyRef struct {
	Name string `json:"name" minLength:"1" maxLength:"253" pattern:"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$"`
	Key  string `json:"key" minLength:"1" maxLength:"253" pattern:"^[A-Za-z0-9._-]+$"`
}

// EnvSource turns all keys of one Secret or ConfigMap into environment
// variables. Exactly one of Secret and ConfigMap must be set.
//
// +kubebuilder:object:generate=true
type EnvSource struct {
	Secret    string `json:"secret,omitempty" maxLength:"253" doc:"Name of a Secret in the App's namespace."`
	ConfigMap string `json:"configMap,omitempty" maxLength:"253" doc:"Name of a ConfigMap in the App's namespace."`
	Prefix    string `json:"prefix,omitempty" maxLength:"64" doc:"Put in front of every key."`
}

// Resources are Kubernetes quantities per pod.
//
// +kubebuilder:object:generate=true
type Resources struct {
	Requests ResourceAmounts `json:"requests,omitzero" doc:"What the scheduler reserves."`
	Limits   ResourceAmounts `json:"limits,omitzero" doc:"What the pod may not exceed."`

	Devices map[string]int32 `json:"devices,omitempty" maxProperties:"8" doc:"Extended resources of nodes, such as nvidia.com/gpu: 1. The pod has them to itself. A build takes none."`
}

// ResourceAmounts are Kubernetes quantities, e.g. "250m" of a CPU, "128Mi".
//
// +kubebuilder:object:generate=true
type ResourceAmounts struct {
	CPU    string `json:"cpu,omitempty" maxLength:"32" pattern:"^[0-9]+(\\.[0-9]+)?m?$" example:"250m"`
	Memory string `json:"memory,omitempty" maxLength:"32" pattern:"^[0-9]+(\\.[0-9]+)?(k|Ki|M|Mi|G|Gi|T|Ti)?$" example:"128Mi"`
}

// Probes are the three Kubernetes probes.
//
// +kubebuilder:object:generate=true
type Probes struct {
	Startup   *Probe `json:"startup,omitempty" doc:"Until it succeeds the other probes wait."`
	Readiness *Probe `json:"readiness,omitempty" doc:"While it fails the pod gets no traffic."`
	Liveness  *Probe `json:"liveness,omitempty" doc:"When it fails the container is restarted."`
}

// Probe asks the container over HTTP, TCP or by a command. Exactly one of
// HTTP, TCP and Exec must be set. Durations are whole seconds, as Kubernetes'.
//
// +kubebuilder:object:generate=true
type Probe struct {
	HTTP                *HTTPProbe `json:"http,omitempty" doc:"Succeeds on a status from 200 to 399."`
	TCP                 *TCPProbe  `json:"tcp,omitempty" doc:"Succeeds when the port accepts a connection."`
	Exec                []string   `json:"exec,omitempty" maxItems:"64" doc:"Command that succeeds with exit code 0."`
	InitialDelaySeconds int32      `json:"initialDelaySeconds,omitempty" minimum:"0" maximum:"3600"`
	PeriodSeconds       int32      `json:"periodSeconds,omitempty" minimum:"1" maximum:"3600" doc:"Kubernetes' default is 10."`
	TimeoutSeconds      int32      `json:"timeoutSeconds,omitempty" minimum:"1" maximum:"600" doc:"Kubernetes' default is 1."`
	FailureThreshold    int32      `json:"failureThreshold,omitempty" minimum:"1" maximum:"1000" doc:"Kubernetes' default is 3."`
}

// HTTPProbe is a GET request to the container.
//
// +kubebuilder:object:generate=true
type HTTPProbe struct {
	Path string `json:"path,omitempty" maxLength:"1024" pattern:"^/" default:"/"`
	Port int32  `json:"port" minimum:"1" maximum:"65535"`
}

// TCPProbe is a connection to the container.
//
// +kubebuilder:object:generate=true
type TCPProbe struct {
	Port int32 `json:"port" minimum:"1" maximum:"65535"`
}

// Phase sums up an App in one word.
type Phase string

// The phases of an App.
const (
	PhaseProgressing Phase = "Progressing" // a rollout is in progress and nothing is known to be wrong
	PhaseHealthy     Phase = "Healthy"     // every pod of the newest spec is ready and stayed so, no old one is left
	PhaseDegraded    Phase = "Degraded"    // it serves, but with fewer pods than asked for or with an old spec
	PhaseFailed      Phase = "Failed"      // it does not serve, and Diagnosis says why
	PhasePaused      Phase = "Paused"      // it is left as it is: spec.paused
	PhaseDeleting    Phase = "Deleting"    // it was deleted, and WaitingFor says what keeps it
)

// Phases returns all phases.
func Phases() []Phase {
	return []Phase{PhaseProgressing, PhaseHealthy, PhaseDegraded, PhaseFailed, PhasePaused, PhaseDeleting}
}

// AppStatus is what is there.
type AppStatus struct {
	Phase              Phase       `json:"phase,omitempty" enum:"Progressing,Healthy,Degraded,Failed,Paused,Deleting"`
	ObservedGeneration int64       `json:"observedGeneration,omitempty" doc:"Generation of the spec that this status speaks of."`
	Replicas           int32       `json:"replicas" doc:"Pods that exist."`
	UpdatedReplicas    int32       `json:"updatedReplicas" doc:"Pods that run the newest spec."`
	ReadyReplicas      int32       `json:"readyReplicas" doc:"Pods that are ready."`
	DesiredReplicas    int32       `json:"desiredReplicas" doc:"Pods asked for: by the spec, by autoscaling, one for each node, or by a run."`
	Restarts           int32       `json:"restarts" doc:"Container restarts of the pods that exist."`
	URLs               []string    `json:"urls,omitempty" doc:"Where the App answers inside the cluster."`
	PublicURLs         []string    `json:"publicUrls,omitempty" doc:"Where the App is reached from outside: those of its hosts that the gateway or an ingress controller serves."`
	Conditions         []Condition `json:"conditions,omitempty" doc:"The App's state in the form that Kubernetes' tools read, and how those of its sides are that have no part in its phase."`
	Jobs               []JobResult `json:"jobs,omitempty" doc:"The jobs of a Pipeline, in their order."`
	Runs               []Run       `json:"runs,omitempty" doc:"Runs of a Job or CronJob, the newest first."`
	Diagnosis          *Diagnosis  `json:"diagnosis,omitempty" doc:"What is wrong, when something is."`
	WaitingFor         string      `json:"waitingFor,omitempty" doc:"What has to happen before the App is Healthy, while nothing is known to be wrong; or before a deleted App is gone."`
	LastLines          []string    `json:"lastLines,omitempty" doc:"Last lines of the init container that waitingFor names."`
	Revision           int64       `json:"revision,omitempty" doc:"Revision of the spec that this status speaks of."`
	Undone             *Undone     `json:"undone,omitempty" doc:"The failed rollout that the agent took back, while the revision it went back to holds."`
	Drift              *Drift      `json:"drift,omitempty" doc:"Changes of the App's objects that the agent did not make, and undid."`
	LastTransition     *time.Time  `json:"lastTransition,omitempty" doc:"When the phase last changed."`
}

// Scale is the body of the scale call: a number of pods, which turns autoscaling off, or bounds of
// autoscaling. Fields that it leaves out stay unchanged.
type Scale struct {
	Replicas   *int32 `json:"replicas,omitempty" minimum:"0" maximum:"1000" doc:"Number of pods to run; turns autoscaling off."`
	Min        *int32 `json:"min,omitempty" minimum:"1" maximum:"1000" doc:"Fewest pods. With max it turns autoscaling on."`
	Max        *int32 `json:"max,omitempty" minimum:"1" maximum:"1000" doc:"Most pods."`
	CPUPercent *int32 `json:"cpuPercent,omitempty" minimum:"1" maximum:"1000" doc:"Usage of the requested CPU to aim at, over all pods."`
}

// Validate returns an error for a body that asks for nothing, or for two things.
func (s Scale) Validate() []FieldError {
	v := &validation{}
	bounds := s.Min != nil || s.Max != nil || s.CPUPercent != nil
	switch {
	case s.Replicas == nil && !bounds:
		v.add("replicas", "say what to scale to: replicas, or min and max")
	case s.Replicas != nil && bounds:
		v.add("replicas", "either replicas or bounds of autoscaling may be given")
	case s.Min != nil && s.Max != nil && *s.Min > *s.Max:
		v.add("min", "min is more than max")
	}
	return v.errs
}

// Key names a namespaced object.
type Key struct{ Namespace, Name string }

func (k Key) String() string { return k.Namespace + "/" + k.Name }
