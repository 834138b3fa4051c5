// Package backend has the interfaces through which the server of the Runner API uses the agent.
// They hide what the calls do, so the server depends on no Kubernetes client. Interfaces and
// methods have the names of the client's handles.
package backend

import (
	"context"
	"net/http"
	"net/url"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Apps is what the server needs from the App engine.
//
// Every method returns a *Error if the caller can act on it. Any other error becomes a 500 without
// detail.
type Apps interface {
	// Deploy creates the App or replaces its spec.
	Deploy(ctx context.Context, key runnerapi.Key, spec runnerapi.AppSpec, opts runnerapi.WriteOptions) (runnerapi.App, error)
	// Get returns one App.
	Get(ctx context.Context, key runnerapi.Key) (runnerapi.App, error)
	// List returns the Apps of a namespace, or of all managed namespaces if it is empty.
	List(ctx context.Context, namespace string) ([]runnerapi.App, error)
	// Delete removes the App and what it created. It returns NotFound if there is no such App.
	Delete(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) error
	// Scale sets the number of pods or the bounds of autoscaling.
	Scale(ctx context.Context, key runnerapi.Key, scale runnerapi.Scale, opts runnerapi.WriteOptions) (runnerapi.App, error)
	// Restart replaces all pods, a few at a time, and runs a Job again. It changes nothing if its
	// Idempotency-Key was used before on this App.
	Restart(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) (runnerapi.App, error)
	// Pause stops changes to the App, including those of its spec, until Resume.
	Pause(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) (runnerapi.App, error)
	Resume(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) (runnerapi.App, error)
	// Revisions returns the revisions that Rollback can return to, newest first.
	Revisions(ctx context.Context, key runnerapi.Key) ([]runnerapi.Revision, error)
	// Rollback returns to a revision, by default the newest healthy one before the current one, and
	// records that as a new revision. The number of pods, autoscaling and the pause stay as they
	// are.
	Rollback(ctx context.Context, key runnerapi.Key, to runnerapi.RollbackTo, opts runnerapi.WriteOptions) (runnerapi.App, error)
	// Events calls emit for the App's state and for each change of it. It ends once the App has
	// settled or, with Follow, once ctx ends.
	Events(ctx context.Context, key runnerapi.Key, opts runnerapi.EventOptions, emit func(runnerapi.AppEvent) error) error
	// Wait blocks until the App of at least this generation has settled (Healthy, Failed, or
	// Degraded with a diagnosis) or ctx ends. It returns the newest state in both cases.
	Wait(ctx context.Context, key runnerapi.Key, generation int64) (runnerapi.App, error)
	// Logs calls emit for each line, in order per pod and interleaved by time over all pods. It
	// ends after the last line or, with Follow, once ctx ends.
	Logs(ctx context.Context, key runnerapi.Key, opts runnerapi.LogOptions, emit func(runnerapi.LogLine) error) error
}

// Secrets is what the server needs for the calls about secrets.
type Secrets interface {
	Set(ctx context.Context, key runnerapi.Key, spec runnerapi.SecretSpec, opts runnerapi.WriteOptions) (runnerapi.Secret, error)
	Get(ctx context.Context, key runnerapi.Key) (runnerapi.Secret, error)
	List(ctx context.Context, namespace string) ([]runnerapi.Secret, error)
	Delete(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) error
}

// ConfigMaps is what the server needs for the calls about config maps.
type ConfigMaps interface {
	Set(ctx context.Context, key runnerapi.Key, spec runnerapi.ConfigMapSpec, opts runnerapi.WriteOptions) (runnerapi.ConfigMap, error)
	Get(ctx context.Context, key runnerapi.Key) (runnerapi.ConfigMap, error)
	// List returns config maps without their values.
	List(ctx context.Context, namespace string) ([]runnerapi.ConfigMap, error)
	Delete(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) error
}

// Monitoring is what the server needs for the calls that components of the cluster answer. Each
// method returns NotSupported if the cluster lacks the component.
type Monitoring interface {
	// Metrics returns what an App uses.
	Metrics(ctx context.Context, key runnerapi.Key) (runnerapi.AppMetrics, error)
	// MetricsHistory returns an App's metrics over time.
	MetricsHistory(ctx context.Context, key runnerapi.Key, opts runnerapi.HistoryOptions) (runnerapi.MetricsHistory, error)
	// Alerts returns the active alerts of a managed namespace. If it is empty, it returns those
	// of all managed namespaces, and those about the cluster.
	Alerts(ctx context.Context, namespace string) ([]runnerapi.Alert, error)
	// Cost returns what managed namespaces, or the Apps in them, have cost.
	Cost(ctx context.Context, opts runnerapi.CostOptions) (runnerapi.CostList, error)
}

// Namespaces is what the server needs for the namespace calls.
type Namespaces interface {
	Set(ctx context.Context, name string, spec runnerapi.NamespaceSpec, opts runnerapi.WriteOptions) (runnerapi.Namespace, error)
	Get(ctx context.Context, name string) (runnerapi.Namespace, error)
	List(ctx context.Context) ([]runnerapi.Namespace, error)
	Delete(ctx context.Context, name string, opts runnerapi.WriteOptions) error
}

// Cluster is what the server needs for the cluster call.
type Cluster interface {
	Get(ctx context.Context) (runnerapi.Cluster, error)
}

// Builds is what the server needs for the calls about builds.
type Builds interface {
	// Run starts a build, unless this very run of this very spec was started before.
	Run(ctx context.Context, key runnerapi.Key, spec runnerapi.BuildSpec, opts runnerapi.WriteOptions) (runnerapi.Build, error)
	Get(ctx context.Context, key runnerapi.Key) (runnerapi.Build, error)
	// List reads the newest run of each build of a namespace.
	List(ctx context.Context, namespace string) ([]runnerapi.Build, error)
	// Delete ends the run that is in progress, and removes all runs.
	Delete(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) error
	// Logs calls emit for each line of the newest run, until all is written or, with
	// Follow, until the run has ended.
	Logs(ctx context.Context, key runnerapi.Key, opts runnerapi.LogOptions, emit func(runnerapi.LogLine) error) error
}

// Sessions is what the server needs for the calls that reach into an App's pods.
//
// Both methods return at once: a function that does the work, or an *Error. Nothing has happened in
// the pod by then.
type Sessions interface {
	// Exec finds the container that a command is to run in.
	Exec(ctx context.Context, key runnerapi.Key, opts runnerapi.ExecOptions) (runnerapi.Execution, error)
	// PortForward finds the pod whose port is meant.
	PortForward(ctx context.Context, key runnerapi.Key, opts runnerapi.PortForwardOptions) (runnerapi.Forwarding, error)
}

// Journal records the writes, visible to all replicas of the agent. So a repeated command is
// recognized, and its outcome can be requested.
type Journal interface {
	// Claim notes that a command is about to be carried out. Where its key was
	// claimed before, known is true and the record the earlier one; with other
	// content it is refused with CodeIdempotencyKeyReused.
	Claim(ctx context.Context, claim Claim) (record Record, known bool, err error)
	// Finish notes what was answered, unless another replica has noted it.
	Finish(ctx context.Context, record Record) error
	// Release forgets a command that was refused: its key may be used again.
	Release(ctx context.Context, id string) error
	// Find reads a record; NotFound if there is none.
	Find(ctx context.Context, id string) (Record, error)
}

// Outcomes is what the server needs to know about an accepted command on an App.
type Outcomes interface {
	// GetLive is like Apps.Get, but includes what another replica of the agent wrote a moment ago.
	GetLive(ctx context.Context, key runnerapi.Key) (runnerapi.App, error)
	Outcome(ctx context.Context, record Record) (runnerapi.Outcome, error)
}

// Manifests is what the server needs for the calls about sets of manifests.
type Manifests interface {
	// Apply applies a stream of manifests as a set. What is wrong with any of them, as
	// far as that can be known before, is an error, and nothing was done then.
	Apply(ctx context.Context, set runnerapi.Key, manifests []byte, opts runnerapi.ApplyOptions) (runnerapi.ApplyResult, error)
	// Get reads a set's inventory with the readiness of each object.
	Get(ctx context.Context, set runnerapi.Key) (runnerapi.ManifestSet, error)
	// List reads the sets of a namespace, without readiness.
	List(ctx context.Context, namespace string) ([]runnerapi.ManifestSet, error)
	// Delete deletes what a set holds, and the set when nothing is left of it. What
	// takes its time to go has a state in the result, and stays in the set.
	Delete(ctx context.Context, set runnerapi.Key, opts runnerapi.ApplyOptions) (runnerapi.ApplyResult, error)
}

// Routes is what the server needs for the calls about public routes, and about who came by them.
type Routes interface {
	// List returns the public routes of all namespaces, in a stable order.
	List(ctx context.Context) ([]runnerapi.Route, error)
	// Traffic returns what visitors of an App requested.
	Traffic(ctx context.Context, key runnerapi.Key, opts runnerapi.TrafficOptions) (runnerapi.Traffic, error)
	// AccessLog calls emit for each of the last requests of visitors. It ends after the last one
	// or, with Follow, once ctx ends.
	AccessLog(ctx context.Context, key runnerapi.Key, opts runnerapi.LogOptions, emit func(runnerapi.LogLine) error) error
}

// Nodes is what the server needs for the calls about nodes, and about how a machine becomes one.
type Nodes interface {
	List(ctx context.Context) ([]runnerapi.Node, error)
	Get(ctx context.Context, name string) (runnerapi.Node, error)
	// Cordon reports whether new pods may come to a node. One that is as it should be stays as
	// it is.
	Cordon(ctx context.Context, name string, cordoned bool, opts runnerapi.WriteOptions) (runnerapi.Node, error)
	// Drain cordons a node and tries once to evict each of its pods. What keeps a
	// pod is in the answer, and no error.
	Drain(ctx context.Context, name string, drain runnerapi.DrainOptions, opts runnerapi.WriteOptions) (runnerapi.Drain, error)
	// JoinCommand returns how a machine joins the cluster. It returns NotSupported if the cluster
	// is not k3s.
	JoinCommand(ctx context.Context) (runnerapi.JoinCommand, error)
	// JoinToken returns the token that the command needs.
	JoinToken(ctx context.Context) (runnerapi.JoinToken, error)
}

// Events is what the server needs for the call about Kubernetes' events.
type Events interface {
	// List reads the events of a managed namespace, the newest first.
	List(ctx context.Context, namespace string, filter runnerapi.EventFilter) ([]runnerapi.ClusterEvent, error)
}

// Releases is what the server needs for the calls about Helm releases.
type Releases interface {
	// Deploy installs a chart or upgrades the release to it. It returns an error for everything
	// that can be detected before a change. The rest continues after the call was answered, and
	// Wait returns the outcome. With DryRun the answer lists the changes that would be made.
	Deploy(ctx context.Context, key runnerapi.Key, spec runnerapi.ReleaseSpec, opts runnerapi.ReleaseOptions) (runnerapi.Release, error)
	Get(ctx context.Context, key runnerapi.Key) (runnerapi.Release, error)
	// List reads the newest revision of each release of a namespace.
	List(ctx context.Context, namespace string) ([]runnerapi.Release, error)
	// History reads the revisions that are kept, the newest first.
	History(ctx context.Context, key runnerapi.Key) ([]runnerapi.Release, error)
	// Rollback goes back to a revision, as a new one. It continues as Deploy does.
	Rollback(ctx context.Context, key runnerapi.Key, to runnerapi.ReleaseRollback, opts runnerapi.ReleaseOptions) (runnerapi.Release, error)
	// Delete uninstalls. It continues as Deploy does, until the objects and their pods are
	// gone. The release stays, as failed, if something holds them.
	Delete(ctx context.Context, key runnerapi.Key, opts runnerapi.ReleaseOptions) (runnerapi.Release, error)
	// Wait waits until no command is at work on the release, or ctx ends. A release
	// that is uninstalled is NotFound.
	Wait(ctx context.Context, key runnerapi.Key) (runnerapi.Release, error)
}

// Sources is what the server needs for the calls about Git sources.
type Sources interface {
	// Set creates the source or replaces its spec.
	Set(ctx context.Context, key runnerapi.Key, spec runnerapi.SourceSpec, opts runnerapi.WriteOptions) (runnerapi.Source, error)
	Get(ctx context.Context, key runnerapi.Key) (runnerapi.Source, error)
	List(ctx context.Context, namespace string) ([]runnerapi.Source, error)
	// Sync makes the agent check the source now. The result is in the source's status.
	Sync(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) (runnerapi.Source, error)
	// Rollback makes the agent go back to an earlier commit, and hold the source there until there
	// is a new one. The result is in the source's status.
	Rollback(ctx context.Context, key runnerapi.Key, to runnerapi.SourceRollback, opts runnerapi.WriteOptions) (runnerapi.Source, error)
	// Previews returns the open pull requests of the repository, and their previews.
	Previews(ctx context.Context, key runnerapi.Key) (runnerapi.SourcePreviewList, error)
	// ApprovePromotion allows the promotion of a commit that waits for it.
	ApprovePromotion(ctx context.Context, key runnerapi.Key, approval runnerapi.CommitApproval, opts runnerapi.WriteOptions) (runnerapi.Source, error)
	// ApprovePreview allows a preview of a fork's commit.
	ApprovePreview(ctx context.Context, key runnerapi.Key, number int64, approval runnerapi.CommitApproval, opts runnerapi.WriteOptions) (runnerapi.Source, error)
	// Delete stops following. What the source has brought stays; its previews end.
	Delete(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) error
}

// KubernetesAPI is what the server needs for the Kubernetes API.
type KubernetesAPI interface {
	// APIServer returns the URL of the cluster's API server and a transport that speaks HTTP/1.1 to
	// it with the agent's own credentials.
	APIServer() (*url.URL, http.RoundTripper, error)
	// Namespaced reports whether a resource is namespaced. It returns true for a resource that the
	// API server does not list.
	Namespaced(ctx context.Context, group, version, resource string) (bool, error)
	// OwnNamespace returns the agent's own namespace, which holds its identity and the cluster
	// owner's policy.
	OwnNamespace() string
}
