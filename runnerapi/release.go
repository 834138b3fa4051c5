package runnerapi

import (
	"errors"
	"slices"
	"strings"
	"time"
)

// ReleaseOptions apply to every command about a release.
type ReleaseOptions struct {
	WriteOptions
	// Admit, if set, is called with a chart and all objects that a command would create, before it
	// creates any. The command returns its refusal. The chart is nil for what templates look up.
	Admit func(*ChartIntent, []ObjectIntent) error
}

// What bounds a release's body.
const (
	MaxChartArchive = 2 << 20 // of an uploaded archive, before base64
	MaxReleaseBody  = 4 << 20 // with the values
)

// The longest that a command about a release may take.
const (
	DefaultReleaseTimeout = 5 * time.Minute
	MaxReleaseTimeout     = time.Hour
)

// ReleaseSpec is a chart and what it is given.
type ReleaseSpec struct {
	Chart  ChartSource    `json:"chart"`
	Values map[string]any `json:"values,omitempty" doc:"Values for the chart, in place of all that an earlier revision had, unless reuseValues or resetThenReuseValues is set. They are kept in a Secret of the namespace and come out of no call."`
	// ReuseValues is Helm's option of that name.
	ReuseValues bool `json:"reuseValues,omitempty" doc:"Merge values over those of the release, with the defaults of its chart in place of this chart's. An installation ignores it."`
	// ResetThenReuseValues is Helm's option of that name.
	ResetThenReuseValues bool `json:"resetThenReuseValues,omitempty" doc:"Merge values over those that the release was given, with the defaults of this chart. An installation ignores it."`
	// Timeout is a duration.
	Timeout string `json:"timeout,omitempty" maxLength:"16" example:"5m" doc:"How long the chart's objects may take to become ready, and each hook to end; 5m when absent, at most 1h. The revision is failed when they have not."`
	// RollbackOnFailure takes back what failed.
	RollbackOnFailure bool `json:"rollbackOnFailure,omitempty" doc:"Go back to the last revision that was deployed when this one fails; uninstall where there was none."`
	// ForceConflicts takes fields over.
	ForceConflicts bool `json:"forceConflicts,omitempty" doc:"Take over fields of the release's objects that others have set since, with kubectl for example. Without this a chart that sets them otherwise is refused."`
	// SkipSchemaValidation is Helm's option of that name.
	SkipSchemaValidation bool `json:"skipSchemaValidation,omitempty" doc:"Do not hold the values against values.schema.json of the chart, which may refer to a schema elsewhere: the agent fetches none."`
	// SkipCRDs is Helm's option of that name.
	SkipCRDs bool `json:"skipCrds,omitempty" doc:"Leave out the resource definitions of the chart's folder crds/."`
	// Adopt takes a release over.
	Adopt bool `json:"adopt,omitempty" doc:"Take over a release of this name that was created with the helm program, and all fields of its objects."`
}

// ChartSource describes where a chart comes from: a repository, a registry, or the body.
type ChartSource struct {
	Repository        string `json:"repository,omitempty" maxLength:"2048" example:"https://charts.example.com" doc:"URL of a chart repository, with name."`
	Name              string `json:"name,omitempty" maxLength:"253" pattern:"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$" example:"web" doc:"Name of the chart in the repository."`
	OCI               string `json:"oci,omitempty" maxLength:"2048" example:"oci://registry.example.com/charts/web" doc:"The chart's repository in an OCI registry."`
	Version           string `json:"version,omitempty" maxLength:"128" example:"1.4.2" doc:"Version, or for a repository a range of them as in ^1.4; the newest that is not a pre-release when absent. A registry wants one, or digest."`
	Archive           []byte `json:"archive,omitempty" doc:"The chart itself, as helm package writes it, in base64; at most 2 MiB before that."`
	CredentialsSecret string `json:"credentialsSecret,omitempty" maxLength:"253" pattern:"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$" example:"chart-login" doc:"Secret of the namespace with url, username and password for the repository or registry. They are sent to addresses within url alone, and to a token server of the registry that the key realm names."`
}

// Validate returns errors that the types cannot express.
func (s ReleaseSpec) Validate() []FieldError {
	fields := s.Chart.validate()
	if s.ReuseValues && s.ResetThenReuseValues {
		fields = append(fields, FieldError{Field: "resetThenReuseValues", Message: "give this or reuseValues: they differ in the chart whose defaults hold"})
	}
	if _, err := s.timeout(); err != nil {
		fields = append(fields, FieldError{Field: "timeout", Message: "give a duration such as 5m, of 1s at least and 1h at most"})
	}
	return fields
}

func (c ChartSource) validate() (fields []FieldError) {
	add := func(field, message string) {
		fields = append(fields, FieldError{Field: "chart" + field, Message: message})
	}
	switch {
	case count(c.Repository != "", c.OCI != "", len(c.Archive) > 0) != 1:
		add("", "give exactly one of repository, oci and archive")
	case c.Repository != "" && c.Name == "":
		add(".name", "a chart of a repository has a name")
	case c.Repository == "" && c.Name != "":
		add(".name", "only a chart of a repository is named here")
	case c.OCI != "" && !strings.HasPrefix(c.OCI, "oci://"):
		add(".oci", "it begins with oci://")
	case c.OCI != "" && c.Version == "":
		add(".version", "a registry does not say which version is the newest: name one, or a digest (sha256:…)")
	case len(c.Archive) > 0 && (c.Version != "" || c.CredentialsSecret != ""):
		add(".archive", "an archive has its version in it, and needs no credentials")
	case len(c.Archive) > MaxChartArchive:
		add(".archive", "a chart has at most 2 MiB: Kubernetes keeps a release in 1 MiB")
	}
	return fields
}

func (s ReleaseSpec) timeout() (time.Duration, error) { return releaseTimeout(s.Timeout) }

func releaseTimeout(text string) (time.Duration, error) {
	if text == "" {
		return DefaultReleaseTimeout, nil
	}
	d, err := time.ParseDuration(text)
	if err == nil && (d < time.Second || d > MaxReleaseTimeout) {
		return 0, errors.New("out of range")
	}
	return d, err
}

// TimeLimit returns the timeout of a valid spec.
func (s ReleaseSpec) TimeLimit() time.Duration {
	d, err := s.timeout()
	if err != nil {
		return DefaultReleaseTimeout
	}
	return d
}

// ReleaseRollback is the body of the rollback call.
type ReleaseRollback struct {
	Revision int    `json:"revision,omitempty" minimum:"0" maximum:"1000000" doc:"Revision to go back to; the one that was deployed before when absent."`
	Timeout  string `json:"timeout,omitempty" maxLength:"16" example:"5m" doc:"As of a deploy."`

	ForceConflicts bool `json:"forceConflicts,omitempty" doc:"As of a deploy."`
}

// TimeLimit returns the timeout of a valid rollback.
func (r ReleaseRollback) TimeLimit() time.Duration {
	return ReleaseSpec{Timeout: r.Timeout}.TimeLimit()
}

// Validate returns errors that the types cannot express.
func (r ReleaseRollback) Validate() []FieldError {
	if _, err := releaseTimeout(r.Timeout); err != nil {
		return []FieldError{{Field: "timeout", Message: "give a duration such as 5m, of 1s at least and 1h at most"}}
	}
	return nil
}

// ReleaseStatus is Helm's status of a revision.
type ReleaseStatus string

// The states of a revision, in Helm's words.
const (
	ReleaseDeployed        ReleaseStatus = "deployed"
	ReleaseFailed          ReleaseStatus = "failed"
	ReleaseSuperseded      ReleaseStatus = "superseded"
	ReleaseUninstalled     ReleaseStatus = "uninstalled"
	ReleaseUninstalling    ReleaseStatus = "uninstalling"
	ReleasePendingInstall  ReleaseStatus = "pending-install"
	ReleasePendingUpgrade  ReleaseStatus = "pending-upgrade"
	ReleasePendingRollback ReleaseStatus = "pending-rollback"
)

// Release is a revision of a Helm release: the newest, unless another one is requested. It leaves
// out values, notes and manifests, which may contain secrets.
type Release struct {
	Namespace   string        `json:"namespace"`
	Name        string        `json:"name"`
	Revision    int           `json:"revision"`
	Status      ReleaseStatus `json:"status" enum:"unknown,deployed,uninstalled,superseded,failed,uninstalling,pending-install,pending-upgrade,pending-rollback"`
	Description string        `json:"description,omitempty" doc:"Why it failed, where it did."`
	Chart       ReleaseChart  `json:"chart"`
	UpdatedAt   time.Time     `json:"updatedAt,omitzero"`
	// Undone is the revision before, where it failed and this one went back from it.
	Undone *ReleaseUndone `json:"undone,omitempty" doc:"The revision that failed and was taken back by this one."`
	// Managed says whose it is.
	Managed bool `json:"managed" doc:"It came through the agent. Another, created with the helm program, is changed only once it was adopted."`
	// Operation is a command that is at work.
	Operation *ReleaseOperation `json:"operation,omitempty" doc:"The command that is at work on the release now."`
	Objects   []ReleaseObject   `json:"objects,omitempty" doc:"What the revision consists of; in a dry run, what would become of each."`
}

// ReleaseUndone is a revision that failed and was taken back.
type ReleaseUndone struct {
	Revision    int    `json:"revision"`
	Description string `json:"description,omitempty" doc:"Why it failed."`
}

// ReleaseChart names a chart.
type ReleaseChart struct {
	Name       string `json:"name"`
	Version    string `json:"version"`
	AppVersion string `json:"appVersion,omitempty"`
}

// ReleaseOperation is a command about a release that is in progress.
type ReleaseOperation struct {
	Command   string    `json:"command" example:"put-release"`
	Runner    string    `json:"runner"`
	StartedAt time.Time `json:"startedAt,omitzero"`
	Progress  string    `json:"progress,omitempty" example:"waiting for Deployment web (1 of 4 objects)"`
}

// ReleaseObject is an object of a release.
type ReleaseObject struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	Hook       string `json:"hook,omitempty" doc:"When it is made, for a hook."`
	Change     string `json:"change,omitempty" enum:"create,change,none,delete,unknown" doc:"Only in a dry run. Unknown: its kind comes with this chart."`

	State     ObjectState `json:"state,omitempty" enum:"ready,inProgress,failed,missing,unknown" doc:"How it is, of what runs pods, where one release is asked for."`
	Message   string      `json:"message,omitempty" doc:"What it waits for, or what is wrong."`
	Warnings  []string    `json:"warnings,omitempty" doc:"List entries of the template that were left out, because a later one has the same key."`
	Diagnosis *Diagnosis  `json:"diagnosis,omitempty" doc:"What is wrong with it."`
	LastLines []string    `json:"lastLines,omitempty" doc:"Last lines of the init container that the message names."`
}

// ReleaseList is releases, or revisions of one.
type ReleaseList struct {
	Items []Release `json:"items" nullable:"false"`
	Page
}

// Busy reports whether a command is at work.
func (r Release) Busy() bool { return r.Operation != nil }

// Uninstalled returns the release as it was, once it is uninstalled.
func (r Release) Uninstalled() Release {
	r.Status, r.Operation, r.Description, r.Objects = ReleaseUninstalled, nil, "", slices.Clone(r.Objects)
	for i := range r.Objects {
		r.Objects[i].State, r.Objects[i].Message, r.Objects[i].Diagnosis = "", "", nil
	}
	return r
}

// exampleChart is a chart of one Service, as helm package writes it.
const exampleChart = "H4sIAAAAAAAC/+2UsU7DMBCGPfsp7gkcJ00LytqdAaQuiOHUnIJF4gT7EgmFvDt2qgqpCwvtAP6WO//2nQf7v2Y0NWX7V3SsPrBrxRXQgV1ZrjFwGbXeFt951HN9tysFaHEDRs/owvXif4KDOZDzprcVTIW02FEFTfwUcjrrudJKS5H4g6xPnTF1Q4tMPlvXvzwJfvJ/sckv/L/R+Tb5/+b+z+WbsXUFT+QmcyTZEWONjJUEOE2GeQb1SC2hJ/UQFFiWsIfW9owcmvhwpHFEbGxzOn3AdiSvziJ8wvvYcyxcpB/oGHsPveNQ+TzHpIJ7vbykcZNIJBLX5QsUcwKvAAwAAA=="
