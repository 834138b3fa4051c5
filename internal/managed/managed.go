// Package managed holds the marks by which the agent knows its own objects in
// a cluster: labels, annotations, the field manager, the namespaces it keeps
// out of. It holds no behaviour beyond reading those marks.
package managed

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FieldManager is the agent's name in server-side apply.
const FieldManager = "pipeops-agent"

// Labels of what the agent owns.
const (
	By      = "app.kubernetes.io/managed-by" // on every object of the agent's
	ByAgent = "pipeops"                      // value of By
	App     = "pipeops.io/app"               // on what belongs to one App; the App's name
)

// Annotations of what the agent writes.
const (
	ChangedBy   = "pipeops.io/changed-by"   // Runner that changed the object last
	RequestID   = "pipeops.io/request-id"   // Request-Id of that change
	Applied     = "pipeops.io/applied"      // digest of what the agent applied
	Run         = "pipeops.io/run"          // on a Job: what tells its run from another of the same App
	RestartedAt = "pipeops.io/restarted-at" // when a restart was last asked for
	Commands    = "pipeops.io/commands"     // digests of the last commands that changed the object
	Notes       = "pipeops.io/notes"        // who made the newest generations of an App, and what for
	Changes     = "pipeops.io/changes"      // what a revision changed
	Restores    = "pipeops.io/restores"     // the revision that this one went back to
	Commit      = "pipeops.io/commit"       // Git commit that a revision was taken from
	Undid       = "pipeops.io/undid"        // the failed revision that this one took back
	Operation   = "pipeops.io/operation"    // what became of a command
	Runner      = "pipeops.io/runner"       // the Runner that sent a command
	Sync        = "pipeops.io/sync"         // on a source: the call that asked to look at it now
	Stopped     = "pipeops.io/stopped"      // on a workload of a set or a release: why the agent stopped its rollout
	Adopted     = "pipeops.io/adopted"      // on an App: what it took over that was there before
	Contents    = "pipeops.io/contents"     // digest of the Secrets and ConfigMaps whose change restarts the App
)

// SetOf is the annotation of an object that belongs to a set of manifests:
// NAMESPACE/NAME of the set.
const SetOf = "pipeops.io/set"

// Release is the label of a Helm revision that the agent made: its number. The lock of a
// release has it too, with the release's name.
const Release = "pipeops.io/release"

// AgentNamespace is where the agent itself runs.
const AgentNamespace = "pipeops"

// Labels marks an object of the agent's.
func Labels() map[string]string { return map[string]string{By: ByAgent} }

// AppLabels marks an object that belongs to one App.
func AppLabels(app string) map[string]string { return map[string]string{By: ByAgent, App: app} }

// Is says whether an object carries the agent's mark.
func Is(o metav1.Object) bool { return o.GetLabels()[By] == ByAgent }

// Scope says which namespaces an agent may manage. Those that it does manage
// carry its mark besides.
type Scope struct {
	Agent string   // the agent's own namespace
	Only  []string // no others; empty for any
}

// Covers says whether the agent may manage a namespace of this name.
func (s Scope) Covers(name string) bool {
	return !ReservedNamespace(name, s.Agent) && (len(s.Only) == 0 || slices.Contains(s.Only, name))
}

// Manages says whether the agent manages this namespace.
func (s Scope) Manages(ns metav1.Object) bool { return Is(ns) && s.Covers(ns.GetName()) }

// ReservedNamespace says whether a namespace is Kubernetes' own, everybody's,
// or the agent's, and so never to be managed.
func ReservedNamespace(name, agentNamespace string) bool {
	return strings.HasPrefix(name, "kube-") || name == metav1.NamespaceDefault ||
		name == AgentNamespace || name == agentNamespace
}
