package runnerapi

import (
	"context"
	"time"
)

// Apps is what the server needs of the App engine.
//
// Every method answers a *Error where the caller can do something about it;
// any other error becomes a 500 without detail.
type Apps interface {
	// Deploy creates the App or replaces its spec.
	Deploy(ctx context.Context, key Key, spec AppSpec, opts WriteOptions) (App, error)
	// Get reads one App.
	Get(ctx context.Context, key Key) (App, error)
	// List reads the Apps of a namespace, or of all managed namespaces when it is empty.
	List(ctx context.Context, namespace string) ([]App, error)
	// Delete removes the App and what it made. Deleting what is not there is NotFound.
	Delete(ctx context.Context, key Key, opts WriteOptions) error
	// Scale sets the number of pods, or the bounds of autoscaling.
	Scale(ctx context.Context, key Key, scale Scale, opts WriteOptions) (App, error)
	// Restart replaces all pods, a few at a time; a Job it runs again. With an Idempotency-Key that
	// was used before on this App it changes nothing.
	Restart(ctx context.Context, key Key, opts WriteOptions) (App, error)
	// Pause leaves the App as it is, whatever its spec says, until Resume.
	Pause(ctx context.Context, key Key, opts WriteOptions) (App, error)
	Resume(ctx context.Context, key Key, opts WriteOptions) (App, error)
	// Revisions lists what Rollback can go back to, newest first.
	Revisions(ctx context.Context, key Key) ([]Revision, error)
	// Rollback goes back to a revision, by default the one before, as a new
	// revision. The number of pods, autoscaling and paused stay.
	Rollback(ctx context.Context, key Key, to RollbackTo, opts WriteOptions) (App, error)
	// Events calls emit for the App's state and each change of it until it has
	// settled or, with Follow, until ctx ends.
	Events(ctx context.Context, key Key, opts EventOptions, emit func(AppEvent) error) error
	// Wait blocks until the App of at least this generation is settled
	// (Healthy, Failed or Degraded with a diagnosis) or ctx ends, and answers the
	// newest state either way.
	Wait(ctx context.Context, key Key, generation int64) (App, error)
	// Logs calls emit for each line, in order per pod, interleaved by time over
	// all pods, until all is written or, with Follow, until ctx ends.
	Logs(ctx context.Context, key Key, opts LogOptions, emit func(LogLine) error) error
}

// Secrets is what the server needs for the secret calls.
type Secrets interface {
	PutSecret(ctx context.Context, key Key, spec SecretSpec, opts WriteOptions) (Secret, error)
	GetSecret(ctx context.Context, key Key) (Secret, error)
	ListSecrets(ctx context.Context, namespace string) ([]Secret, error)
	DeleteSecret(ctx context.Context, key Key, opts WriteOptions) error
}

// ConfigMaps is what the server needs for the config map calls.
type ConfigMaps interface {
	PutConfigMap(ctx context.Context, key Key, spec ConfigMapSpec, opts WriteOptions) (ConfigMap, error)
	GetConfigMap(ctx context.Context, key Key) (ConfigMap, error)
	// ListConfigMaps answers no values.
	ListConfigMaps(ctx context.Context, namespace string) ([]ConfigMap, error)
	DeleteConfigMap(ctx context.Context, key Key, opts WriteOptions) error
}

// AppMeter is what the server needs for the metrics call.
type AppMeter interface {
	// Metrics says what an App uses. Without metrics-server it is NotSupported.
	Metrics(ctx context.Context, key Key) (AppMetrics, error)
}

// Namespaces is what the server needs for the namespace calls.
type Namespaces interface {
	PutNamespace(ctx context.Context, name string, spec NamespaceSpec, opts WriteOptions) (Namespace, error)
	GetNamespace(ctx context.Context, name string) (Namespace, error)
	ListNamespaces(ctx context.Context) ([]Namespace, error)
	DeleteNamespace(ctx context.Context, name string, opts WriteOptions) error
}

// Clusters is what the server needs for the cluster call.
type Clusters interface {
	Cluster(ctx context.Context) (Cluster, error)
}

// Key names a namespaced object.
type Key struct{ Namespace, Name string }

func (k Key) String() string { return k.Namespace + "/" + k.Name }

// WriteOptions apply to every write.
type WriteOptions struct {
	// DryRun checks everything the cluster checks and changes nothing.
	DryRun bool
	// Adopt has a deploy take over objects of the App's names that were made otherwise and
	// that nothing else looks after.
	Adopt bool
	// IdempotencyKey is the caller's name for this very command; empty where
	// the caller gave none.
	IdempotencyKey string
	// Command tells this very command from all others: the same wherever and however
	// often it is carried out, another one where its key is used anew. Empty where no
	// one would know it again.
	Command string
	// Caller is who sent the command.
	Caller Caller
	// Commit is the one that an App's spec was taken from, of a Git source; empty for a
	// Runner's own.
	Commit string
	// Admit is asked, where it is set, about a spec that the command brings without
	// having it in its body: a revision's, or one with what stays of the App. Its refusal is
	// the answer.
	Admit func(AppSpec) error `json:"-"`
	// Answered is asked, where it is set, whether this very command was answered meanwhile,
	// by another replica of the agent: see Late.
	Answered func(context.Context) (bool, error) `json:"-"`
}

// Late says whether a command is to be left alone because it was carried out and answered by
// another replica while this one was held. A command that deletes asks when it has read what it
// is about to delete, and deletes that very object by its UID: one that came after the command
// was answered is then never the one that it deletes. Its note, by which other commands are
// known again, was deleted with the object.
func (o WriteOptions) Late(ctx context.Context) (bool, error) {
	if o.Answered == nil || o.DryRun {
		return false, nil
	}
	return o.Answered(ctx)
}

// Caller is who sent a command.
type Caller struct {
	Runner    string // name in the Runner's certificate
	RequestID string // Request-Id of the call
}

// Scale is the body of the scale call: a number of pods, which turns autoscaling
// off, or bounds of autoscaling. What it does not name stays.
type Scale struct {
	Replicas   *int32 `json:"replicas,omitempty" minimum:"0" maximum:"1000" doc:"Number of pods to run; turns autoscaling off."`
	Min        *int32 `json:"min,omitempty" minimum:"1" maximum:"1000" doc:"Fewest pods. With max it turns autoscaling on."`
	Max        *int32 `json:"max,omitempty" minimum:"1" maximum:"1000" doc:"Most pods."`
	CPUPercent *int32 `json:"cpuPercent,omitempty" minimum:"1" maximum:"1000" doc:"Usage of the requested CPU to aim at, over all pods."`
}

// LogOptions select log lines.
type LogOptions struct {
	Follow    bool
	Tail      int           // last lines per pod; negative for all
	Since     time.Duration // no older than this; 0 for all
	Previous  bool          // of the run before the last restart
	Container string        // empty for the App's own container
	UntilDone bool          // Follow ends when what runs to its end has: a Job's or Pipeline's
}

// LogLine is one line of one container.
type LogLine struct {
	Time time.Time `json:"time,omitzero"`
	Pod  string    `json:"pod"`
	Line string    `json:"line"`
}
