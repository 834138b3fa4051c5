package runnerapi

import (
	"reflect"
	"slices"
)

// File is a file in the App's containers, or a directory of files, with the
// content of a Secret or ConfigMap. A single file does not change under a
// running process; those of a directory do, a minute or so later.
//
// +kubebuilder:object:generate=true
type File struct {
	Path      string   `json:"path" minLength:"2" maxLength:"1024" pattern:"^(/[^/:\\s]+)+$" doc:"Where the file is; with a source that names no key, a directory with a file for each key." example:"/etc/web/config.yaml"`
	Secret    *FileRef `json:"secret,omitempty"`
	ConfigMap *FileRef `json:"configMap,omitempty"`
}

// FileRef names a Secret or ConfigMap in the App's namespace, or a key in it.
//
// +kubebuilder:object:generate=true
type FileRef struct {
	Name string `json:"name" minLength:"1" maxLength:"253" pattern:"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$"`
	Key  string `json:"key,omitempty" maxLength:"253" pattern:"^[A-Za-z0-9._-]+$" doc:"All keys when absent."`
}

// Volume is a directory that outlives the container. Exactly one of EmptyDir,
// Claim and ExistingClaim must be set.
//
// +kubebuilder:object:generate=true
type Volume struct {
	Name          string       `json:"name" minLength:"1" maxLength:"40" pattern:"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"`
	MountPath     string       `json:"mountPath" minLength:"2" maxLength:"1024" pattern:"^(/[^/:\\s]+)+$" example:"/var/lib/data"`
	ReadOnly      bool         `json:"readOnly,omitempty"`
	EmptyDir      *EmptyDir    `json:"emptyDir,omitempty" doc:"Empty at first, gone with the pod."`
	Claim         *VolumeClaim `json:"claim,omitempty" doc:"A volume for each pod of a StatefulSet, which the pod keeps over restarts, updates and moves."`
	ExistingClaim string       `json:"existingClaim,omitempty" maxLength:"253" pattern:"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$" doc:"Name of a PersistentVolumeClaim in the App's namespace, shared by all pods."`
}

// EmptyDir is scratch space.
//
// +kubebuilder:object:generate=true
type EmptyDir struct {
	Memory bool   `json:"memory,omitempty" doc:"Keep it in memory, which counts against the memory limit."`
	Size   string `json:"size,omitempty" maxLength:"32" pattern:"^[0-9]+(\\.[0-9]+)?(k|Ki|M|Mi|G|Gi|T|Ti)?$" example:"256Mi"`
}

// VolumeClaim asks for a volume of each pod's own. It cannot change later.
//
// +kubebuilder:object:generate=true
type VolumeClaim struct {
	Size         string `json:"size" maxLength:"32" pattern:"^[0-9]+(\\.[0-9]+)?(k|Ki|M|Mi|G|Gi|T|Ti)?$" example:"10Gi"`
	StorageClass string `json:"storageClass,omitempty" maxLength:"253" pattern:"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$" doc:"The cluster's default when absent."`
	AccessMode   string `json:"accessMode,omitempty" enum:"ReadWriteOnce,ReadWriteOncePod,ReadWriteMany" default:"ReadWriteOnce"`
}

// InitContainer runs to its end before the App's own container starts.
//
// +kubebuilder:object:generate=true
type InitContainer struct {
	Name      string    `json:"name" minLength:"1" maxLength:"63" pattern:"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"`
	Image     string    `json:"image,omitempty" maxLength:"512" pattern:"^[^\\s]+$" doc:"The App's image when absent."`
	Command   []string  `json:"command,omitempty" maxItems:"64"`
	Args      []string  `json:"args,omitempty" maxItems:"256"`
	Env       []EnvVar  `json:"env,omitempty" maxItems:"64" doc:"Beside the App's variables, and over them."`
	Resources Resources `json:"resources,omitzero"`
}

// MetricsPort is where each pod serves metrics, over plain HTTP.
//
// +kubebuilder:object:generate=true
type MetricsPort struct {
	Port int32  `json:"port" minimum:"1" maximum:"65535" doc:"Port the container serves metrics on."`
	Path string `json:"path,omitempty" maxLength:"1024" pattern:"^/[^\\s?#]*$" default:"/metrics"`
}

// Security loosens the restricted security of pods.
//
// +kubebuilder:object:generate=true
type Security struct {
	RunAsUser                *int64   `json:"runAsUser,omitempty" minimum:"0" maximum:"4294967294" doc:"The image's user when absent."`
	RunAsGroup               *int64   `json:"runAsGroup,omitempty" minimum:"0" maximum:"4294967294"`
	FSGroup                  *int64   `json:"fsGroup,omitempty" minimum:"0" maximum:"4294967294" doc:"Group that owns the files of volumes."`
	AllowRoot                bool     `json:"allowRoot,omitempty" doc:"Let the image run as root."`
	AllowPrivilegeEscalation bool     `json:"allowPrivilegeEscalation,omitempty" doc:"Let a process get more rights than its parent, as with sudo."`
	ReadOnlyRootFilesystem   bool     `json:"readOnlyRootFilesystem,omitempty" doc:"Let nothing be written but to volumes."`
	AddCapabilities          []string `json:"addCapabilities,omitempty" maxItems:"13" enum:"AUDIT_WRITE,CHOWN,DAC_OVERRIDE,FOWNER,FSETID,KILL,MKNOD,NET_BIND_SERVICE,SETFCAP,SETGID,SETPCAP,SETUID,SYS_CHROOT" doc:"Linux capabilities; all others are dropped."`
}

// rootCapabilities are those by which images that begin as root give files to another user, become
// it, and listen below port 1024. Docker gives them, and a few more, to every container.
var rootCapabilities = []string{"CHOWN", "DAC_OVERRIDE", "FOWNER", "NET_BIND_SERVICE", "SETGID", "SETUID"}

// SetAllowRoot lets the image run as root, with the capabilities that most such images expect; or
// takes that back.
func (s *AppSpec) SetAllowRoot(allow bool) {
	security := Security{}
	if s.Security != nil {
		security = *s.Security
	}
	security.AllowRoot = allow
	security.AddCapabilities = slices.DeleteFunc(slices.Clone(security.AddCapabilities), func(c string) bool { return !allow && slices.Contains(rootCapabilities, c) })
	for _, c := range rootCapabilities {
		if allow && !slices.Contains(security.AddCapabilities, c) {
			security.AddCapabilities = append(security.AddCapabilities, c)
		}
	}
	if len(security.AddCapabilities) == 0 {
		security.AddCapabilities = nil
	}
	s.Security = &security
	if reflect.ValueOf(security).IsZero() {
		s.Security = nil
	}
}

// ServiceAccount is who the pods are to the Kubernetes API.
//
// +kubebuilder:object:generate=true
type ServiceAccount struct {
	Name  string `json:"name,omitempty" maxLength:"253" pattern:"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$" doc:"ServiceAccount in the App's namespace; the namespace's default when absent."`
	Token bool   `json:"token,omitempty" doc:"Give the pods its token."`
}

// Spread says over what pods are spread.
//
// +kubebuilder:object:generate=true
type Spread struct {
	When    string   `json:"when,omitempty" enum:"Preferred,Required,Never" default:"Preferred" doc:"Required lets a pod wait rather than stand beside another."`
	Over    []string `json:"over,omitempty" maxItems:"4" doc:"Labels of nodes; kubernetes.io/hostname when absent." example:"[\"topology.kubernetes.io/zone\"]"`
	MaxSkew int32    `json:"maxSkew,omitempty" minimum:"1" maximum:"100" doc:"How many more pods one may have than another; 1 when absent."`
}

// Toleration lets pods run on nodes that have a taint.
// See https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/.
//
// +kubebuilder:object:generate=true
type Toleration struct {
	Key      string `json:"key,omitempty" maxLength:"317" pattern:"^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$" doc:"Key of the taint; with Exists, every key when absent."`
	Operator string `json:"operator,omitempty" enum:"Equal,Exists" doc:"Exists is for any value; Equal when absent."`
	Value    string `json:"value,omitempty" maxLength:"63" pattern:"^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$" doc:"Value of the taint, for Equal."`
	Effect   string `json:"effect,omitempty" enum:"NoSchedule,PreferNoSchedule,NoExecute" doc:"Effect of the taint; every effect when absent."`
	Seconds  *int64 `json:"tolerationSeconds,omitempty" minimum:"0" doc:"How long pods stay on a node that gets the taint, for NoExecute; for ever when absent."`
}
