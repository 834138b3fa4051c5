package runnerapi

import "strings"

// Intent describes what a Runner is about to do.
type Intent struct {
	Command   string // ID of the call
	Access    Access
	Runner    string
	Namespace string // empty for what is not in one namespace
	Name      string // of the App, the release or the like that the call is about; empty for none

	// What the command brings, as far as a policy can bound it.
	App *AppSpec // the App as it would be
	// Patches are what the App's patches bring beside its other fields. The policy adds it.
	Patches []ObjectIntent
	Scale   *Scale
	Build   *BuildSpec
	// Chart is the chart of the objects; nil as long as it is not known.
	Chart *ChartIntent
	// Kubernetes is the request to the Kubernetes API.
	Kubernetes *KubernetesRequest
	// PublicHost returns the host of an App below the gateway's domain; nil if it is not known. The
	// policy adds it.
	PublicHost func(Key) string
	// Recorded reports whether the agent records the session. A session that began without a
	// record ends when a rule demands one.
	Recorded bool
	// Approved reports whether the cluster's owner has approved the command.
	Approved bool
	// Objects are those that the command would make, or delete, in form of manifests: of a
	// chart, its hooks included, of a set, of a source.
	Objects []ObjectIntent
}

// Discovers reports whether a Runner only asks the Kubernetes API what exists, or about itself.
// Every rule that allows a request also allows that.
func (i Intent) Discovers() bool { return i.Kubernetes != nil && i.Kubernetes.Discovery }

// ChartIntent identifies a chart that a command deploys.
type ChartIntent struct {
	Name, Version string // as in Chart.yaml
	// Digest is the h1 hash of the chart's files; empty for a revision that is kept.
	Digest string
	// Source is where the chart comes from and its version, as flags of the command lines.
	Source string
}

// String returns the chart's name and version.
func (c ChartIntent) String() string { return strings.TrimSpace(c.Name + " " + c.Version) }

// ObjectIntent describes an object that a command would create, as far as a policy can bound it.
// internal/policy/input computes it.
type ObjectIntent struct {
	Location string // the object's name, and its template; empty if the caller adds them
	Kind     string // KIND or KIND.GROUP; empty for the spec of an App
	Name     string // of the object; empty for the spec of an App
	// ClusterScoped is set for an object in no namespace that a command about one namespace brings,
	// as a chart does. The others are in the command's namespace.
	ClusterScoped bool
	// LookedUp is an object that a template reads of the cluster; the others the chart makes.
	LookedUp bool
	// Counts are the numbers of pods that it asks for.
	Counts []CountIntent
	// Containers are all that it would run: init and ephemeral containers too.
	Containers []ContainerIntent
	// PullSecrets are the Secrets with which the images are pulled, in the object's namespace.
	PullSecrets []string
	// Hosts are the names under which the object would be reachable from outside. They may be
	// wildcards; "*" stands for all names that no other object has.
	Hosts []NameIntent
	// Outside are ways by which the object would be reached from outside without a host that can
	// be checked: "LoadBalancer", "NodePort", a port of the node, or a kind that routes.
	Outside []NameIntent
	// Public is the field by which an App asks for a host below the gateway's domain; empty if it
	// does not.
	Public string
	// Ports are the public ports of the gateway that an App asks for; 0 for any.
	Ports []PortIntent
	// Protected reports that it is an App which does not let in every visitor.
	Protected bool
	// SignedIn reports that it is an App whose visitors have to sign in at an identity provider, or
	// need a service token.
	SignedIn bool
	// Annotations are the annotation keys of the object and of what it creates, such as pods.
	Annotations []NameIntent
	// Placement is how its pods choose their nodes and their priority, as nodeSelector/KEY,
	// toleration/KEY, priorityClass/NAME, node/NAME, runtimeClass/NAME or scheduler/NAME.
	Placement []NameIntent
	// Rights is a digest of the rights that a role holds, or of the role that a binding binds;
	// empty for other kinds.
	Rights string
}

// CountIntent is a number of pods.
type CountIntent struct {
	Field string // of the object
	Pods  int32
}

// ContainerIntent is a container that an object would run.
type ContainerIntent struct {
	Field  string // of the object; empty for an App's own container
	Name   string // empty for an App's own container
	Image  string
	Limits ResourceAmounts
	// Partial reports whether the container's controller adds what is not named.
	Partial bool
}

// PortIntent is a public port that an App asks for.
type PortIntent struct {
	Field    string // of the object
	Port     int32  // 0 for any
	Protocol string // TCP or UDP
}

// NameIntent is a name that an object would use.
type NameIntent struct {
	Field string // of the object
	Name  string
}
