package runnerapi

import (
	"context"
	"time"
)

// Apps is what the server needs from the App engine.
//
// Every method returns a *Error if the caller can act on it. Any other error becomes a 500 without
// detail.
type Apps interface {
	// Deploy creates the App or replaces its spec.
	Deploy(ctx context.Context, key Key, spec AppSpec, opts WriteOptions) (App, error)
	// Get returns one App.
	Get(ctx context.Context, key Key) (App, error)
	// List returns the Apps of a namespace, or of all managed namespaces if it is empty.
	List(ctx context.Context, namespace string) ([]App, error)
	// Delete removes the App and what it created. It returns NotFound if there is no such App.
	Delete(ctx context.Context, key Key, opts WriteOptions) error
	// Scale sets the number of pods or the bounds of autoscaling.
	Scale(ctx context.Context, key Key, scale Scale, opts WriteOptions) (App, error)
	// Restart replaces all pods, a few at a time, and runs a Job again. It changes nothing if its
	// Idempotency-Key was used before on this App.
	Restart(ctx context.Context, key Key, opts WriteOptions) (App, error)
	// Pause stops changes to the App, including those of its spec, until Resume.
	Pause(ctx context.Context, key Key, opts WriteOptions) (App, error)
	Resume(ctx context.Context, key Key, opts WriteOptions) (App, error)
	// Revisions returns the revisions that Rollback can return to, newest first.
	Revisions(ctx context.Context, key Key) ([]Revision, error)
	// Rollback returns to a revision, by default the previous one, and records that as a new
	// revision. The number of pods, autoscaling and the pause stay as they are.
	Rollback(ctx context.Context, key Key, to RollbackTo, opts WriteOptions) (App, error)
	// Events calls emit for the App's state and for each change of it. It ends once the App has
	// settled or, with Follow, once ctx ends.
	Events(ctx context.Context, key Key, opts EventOptions, emit func(AppEvent) error) error
	// Wait blocks until the App of at least this generation has settled (Healthy, Failed, or
	// Degraded with a diagnosis) or ctx ends. It returns the newest state in both cases.
	Wait(ctx context.Context, key Key, generation int64) (App, error)
	// Logs calls emit for each line, in order per pod and interleaved by time over all pods. It
	// ends after the last line or, with Follow, once ctx ends.
	Logs(ctx context.Context, key Key, opts LogOptions, emit func(LogLine) error) error
}

// Secrets is what the server needs for the calls about secrets.
type Secrets interface {
	PutSecret(ctx context.Context, key Key, spec SecretSpec, opts WriteOptions) (Secret, error)
	GetSecret(ctx context.Context, key Key) (Secret, error)
	ListSecrets(ctx context.Context, namespace string) ([]Secret, error)
	DeleteSecret(ctx context.Context, key Key, opts WriteOptions) error
}

// ConfigMaps is what the server needs for the calls about config maps.
type ConfigMaps interface {
	PutConfigMap(ctx context.Context, key Key, spec ConfigMapSpec, opts WriteOptions) (ConfigMap, error)
	GetConfigMap(ctx context.Context, key Key) (ConfigMap, error)
	// ListConfigMaps returns config maps without their values.
	ListConfigMaps(ctx context.Context, namespace string) ([]ConfigMap, error)
	DeleteConfigMap(ctx context.Context, key Key, opts WriteOptions) error
}

// AppMeter is what the server needs for the metrics call.
type AppMeter interface {
	// Metrics returns what an App uses. It returns NotSupported if there is no metrics-server.
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
	// DryRun runs all of the cluster's checks and changes nothing.
	DryRun bool
	// Adopt lets a deploy take over objects with the App's names that were created by other means
	// and that have no other owner.
	Adopt bool
	// IdempotencyKey is the caller's name for this command, or empty.
	IdempotencyKey string
	// Command identifies this command. It stays the same wherever and however often the command is
	// carried out, and differs if the key is used for another command. It is empty if the command
	// cannot be recognized later.
	Command string
	// Caller is the sender of the command.
	Caller Caller
	// Commit is the commit of the Git source from which an App's spec was taken. It is empty for a
	// spec that a Runner sent.
	Commit string
	// Admit, if set, checks a spec that the command uses without having it in its body: a
	// revision's, or one that keeps parts of the App. The command returns its refusal.
	Admit func(AppSpec) error `json:"-"`
	// Answered, if set, reports whether another replica of the agent has answered this command in
	// the meantime: see Late.
	Answered func(context.Context) (bool, error) `json:"-"`
}

// Late reports whether a command must be skipped because another replica carried it out and
// answered it while this replica held it. A command that deletes calls Late after it has read the
// object that it is about to delete, and then deletes that object by its UID. So it never deletes
// an object that was created after the command was answered. The note that identifies repeated
// commands was deleted with the object.
func (o WriteOptions) Late(ctx context.Context) (bool, error) {
	if o.Answered == nil || o.DryRun {
		return false, nil
	}
	return o.Answered(ctx)
}

// Caller is the sender of a command.
type Caller struct {
	Runner    string // the name in the Runner's certificate
	RequestID string // the Request-Id of the call
}

// Scale is the body of the scale call: a number of pods, which turns autoscaling off, or bounds of
// autoscaling. Fields that it leaves out stay unchanged.
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
	UntilDone bool          // Follow ends when a Job or Pipeline has ended
}

// LogLine is one line of one container.
type LogLine struct {
	Time time.Time `json:"time,omitzero"`
	Pod  string    `json:"pod"`
	Line string    `json:"line"`
}
