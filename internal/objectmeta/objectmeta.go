// Package objectmeta defines the metadata by which the agent identifies its own objects in a
// cluster: labels, annotations and the field manager. It also defines which namespaces the agent
// leaves alone.
package objectmeta

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FieldManager is the agent's name in server-side apply.
const FieldManager = "pipeops-agent"

// Labels of what the agent owns.
const (
	ManagedBy      = "app.kubernetes.io/managed-by" // on every object of the agent's
	ManagedByAgent = "pipeops"                      // value of ManagedBy
	App            = "pipeops.io/app"               // on what belongs to one App; the App's name
)

// Annotations of what the agent writes.
const (
	ChangedBy   = "pipeops.io/changed-by"   // Runner that changed the object last
	Actor       = "pipeops.io/actor"        // who acted as that Runner
	RequestID   = "pipeops.io/request-id"   // Request-Id of that change
	Applied     = "pipeops.io/applied"      // digest of what the agent applied
	Run         = "pipeops.io/run"          // on a Job: identifies its run among those of the same App
	RestartedAt = "pipeops.io/restarted-at" // when a restart was last asked for
	Commands    = "pipeops.io/commands"     // digests of the last commands that changed the object
	Notes       = "pipeops.io/notes"        // who made the newest generations of an App, and what for
	Changes     = "pipeops.io/changes"      // what a revision changed
	Restores    = "pipeops.io/restores"     // the revision that this one went back to
	Commit      = "pipeops.io/commit"       // Git commit that a revision was taken from
	Undid       = "pipeops.io/undid"        // the failed revision that this one took back
	Operation   = "pipeops.io/operation"    // what became of a command
	Approved    = "pipeops.io/approved"     // on a request for an approval: when the cluster's owner gave it
	Bytes       = "pipeops.io/bytes"        // on a part of a recording: its size
	Runner      = "pipeops.io/runner"       // the Runner that sent a command
	Sync        = "pipeops.io/sync"         // on a source: the call that asked to look at it now
	Look        = "pipeops.io/look"         // on a source: the number of the last look that a webhook requested
	RolledBack  = "pipeops.io/rolled-back"  // on a source: the commit that it is to be held at
	Approvals   = "pipeops.io/approvals"    // on a source: the commit that may be promoted, and those of forks that may have a preview
	PreviewOf   = "pipeops.io/preview-of"   // on a namespace: the source whose preview it is for
	Stopped     = "pipeops.io/stopped"      // on a workload of a set or a release: why the agent stopped its rollout
	Adopted     = "pipeops.io/adopted"      // on an App: what it took over that was there before
	Contents    = "pipeops.io/contents"     // digest of the Secrets and ConfigMaps whose change restarts the App
)

// SetOf is the annotation of an object that belongs to a set of manifests: NAMESPACE/NAME of the
// set.
const SetOf = "pipeops.io/set"

// DeploymentRevision is the annotation by which a Deployment names its newest ReplicaSet.
const DeploymentRevision = "deployment.kubernetes.io/revision"

// Release is the label of a Helm revision that the agent made: its number. The lock of a release
// also has it, with the release's name.
const Release = "pipeops.io/release"

// Command is the label of a Helm revision with the digest of the command that made it.
const Command = "pipeops.io/command"

// AgentNamespace is the namespace in which the agent itself runs.
const AgentNamespace = "pipeops"

// Labels returns the labels of the agent's objects.
func Labels() map[string]string { return map[string]string{ManagedBy: ManagedByAgent} }

// AppLabels returns the labels of an object that belongs to one App.
func AppLabels(app string) map[string]string {
	return map[string]string{ManagedBy: ManagedByAgent, App: app}
}

// IsManaged reports whether an object has the agent's label.
func IsManaged(o metav1.Object) bool { return o.GetLabels()[ManagedBy] == ManagedByAgent }

// Scope defines which namespaces an agent may manage. Those that it does manage also have its
// label.
type Scope struct {
	Agent string   // the agent's own namespace
	Only  []string // no others; empty for any
}

// Covers reports whether the agent may manage a namespace of this name.
func (s Scope) Covers(name string) bool {
	return !ReservedNamespace(name, s.Agent) && (len(s.Only) == 0 || slices.Contains(s.Only, name))
}

// Manages reports whether the agent manages this namespace.
func (s Scope) Manages(ns metav1.Object) bool { return IsManaged(ns) && s.Covers(ns.GetName()) }

// ReservedNamespace reports whether a namespace belongs to Kubernetes, to all users, or to the
// agent. Such a namespace must never be managed.
func ReservedNamespace(name, agentNamespace string) bool {
	return strings.HasPrefix(name, "kube-") || name == metav1.NamespaceDefault ||
		name == AgentNamespace || name == agentNamespace
}
