package runnerapi

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/Masterminds/semver/v3"

	"github.com/pipeops/pipeops-vm-agent/internal/printable"
)

// SourceType is what a repository brings.
type SourceType string

// What a repository can bring.
const (
	SourceApp       SourceType = "app"
	SourceManifests SourceType = "manifests"
	SourceKustomize SourceType = "kustomize"
	SourceHelm      SourceType = "chart"
)

// Bounds of a source.
const (
	MinSourceInterval     = 30 * time.Second
	MaxSourceInterval     = 24 * time.Hour
	DefaultSourceInterval = 5 * time.Minute
	maxSourceValues       = 64 << 10
	maxSourceName         = 53 // a release's, and with room for a prefix in a set's
)

// SourceSpec is a Git repository, and what of it is to be in the namespace.
type SourceSpec struct {
	URL         string           `json:"url" minLength:"8" maxLength:"2048" doc:"Address of the repository: https://HOST/PATH, ssh://USER@HOST/PATH or USER@HOST:PATH." example:"https://git.example.com/shop/deploy.git"`
	Ref         GitRef           `json:"ref,omitzero" doc:"What to follow; the repository's default branch when empty."`
	Promote     *SourcePromotion `json:"promote,omitempty" doc:"Instead of ref: follow what another source has applied, once that is healthy."`
	Path        string           `json:"path,omitempty" maxLength:"1024" doc:"Where in the repository: a file for app, a file or folder for manifests, a folder for kustomize and chart. The root when empty." example:"production"`
	Type        SourceType       `json:"type" enum:"app,manifests,kustomize,chart" doc:"What is there. app: a file as pipeops-runner deploy -f takes it. manifests: YAML or JSON, in all folders below. kustomize: a folder with a kustomization. chart: a Helm chart."`
	App         string           `json:"app,omitempty" maxLength:"63" pattern:"^[a-z]([a-z0-9-]*[a-z0-9])?$" doc:"For app: name of the App; the source's when empty."`
	AppSpec     string           `json:"appSpec,omitempty" maxLength:"65536" doc:"For app, instead of path: the App's spec as YAML, without an image, which is built. For a repository with a Dockerfile and nothing else." example:"replicas: 2"`
	Build       *SourceBuild     `json:"build,omitempty" doc:"For app: how the image is made where the App's spec names none. Needs what put-build needs: see docs/deployer/builds.md."`
	Chart       *SourceChart     `json:"chart,omitempty" doc:"For chart: its values."`
	Interval    string           `json:"interval,omitempty" maxLength:"16" pattern:"^([0-9]+(s|m|h))+$" doc:"How often to look for a new commit: 30s to 24h; 5m when empty." example:"5m"`
	Credentials string           `json:"credentials,omitempty" maxLength:"253" pattern:"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$" doc:"Secret in the same namespace: url (the repositories that it is for), then username and password, or identity and known_hosts; ca.crt for a server with its own CA." example:"git-deploy"`
	// DecryptionKeys is empty where nothing is decrypted.
	DecryptionKeys string `json:"decryptionKeys,omitempty" maxLength:"253" pattern:"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$" doc:"Secret in the same namespace whose keys *.agekey are age identities: the agent decrypts with them the files that SOPS has encrypted." example:"sops-age"`
	Prune          bool   `json:"prune,omitempty" doc:"Delete objects that the source applied and that have left the repository."`
	// ForceConflicts takes fields over.
	ForceConflicts bool `json:"forceConflicts,omitempty" doc:"Take over fields of the source's objects that others have set since, when a commit is applied. Without this a commit that sets them otherwise fails. An App's fields are always its own."`
	Suspend        bool `json:"suspend,omitempty" doc:"Leave everything as it is until this is taken away."`
	// Report is nil where nothing is reported.
	Report *SourceReport `json:"report,omitempty" doc:"Where the agent reports what became of each commit: see docs/deployer/git.md."`
	// Previews is nil where pull requests are not deployed.
	Previews  *SourcePreviews  `json:"previews,omitempty" doc:"How open pull or merge requests of the repository are deployed, each in a namespace of its own. Needs report."`
	PreviewOf *SourcePreviewOf `json:"previewOf,omitempty" doc:"On the source of a preview: whose it is. The agent alone writes it."`
}

// GitRef is what to follow. At most one is given.
type GitRef struct {
	Branch string `json:"branch,omitempty" maxLength:"255" example:"main"`
	Tag    string `json:"tag,omitempty" maxLength:"255" example:"v1.4.2"`
	Semver string `json:"semver,omitempty" maxLength:"255" doc:"Range of semantic versions: the newest tag within it is followed, named 1.2.3 or v1.2.3. A pre-release matches only a range that names one." example:">=1.2.0 <2"`
	Commit string `json:"commit,omitempty" maxLength:"40" pattern:"^[0-9a-f]{40}$" doc:"Follow nothing: this commit, by all 40 digits. Not every server gives any commit."`
}

// SourceChart is how a chart is rendered.
type SourceChart struct {
	Release     string   `json:"release,omitempty" maxLength:"53" pattern:"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$" doc:"Name of the release in the chart's templates; the source's when empty."`
	ValuesFiles []string `json:"valuesFiles,omitempty" maxItems:"16" doc:"Files of the repository, seen from its root, with values; a later one wins."`
	Values      string   `json:"values,omitempty" maxLength:"65536" doc:"Values as YAML, which win over all files."`
}

// Source is a Git repository that the agent follows.
type Source struct {
	Namespace  string       `json:"namespace"`
	Name       string       `json:"name"`
	Generation int64        `json:"generation" doc:"Counts the changes of the spec."`
	CreatedAt  time.Time    `json:"createdAt,omitzero"`
	Runner     string       `json:"runner,omitempty" doc:"Runner that put it: the agent applies the source in the name of this Runner, within its policy."`
	Spec       SourceSpec   `json:"spec"`
	Status     SourceStatus `json:"status"`
}

// SourcePhase is how a source is doing.
type SourcePhase string

// The phases of a source.
const (
	SourcePending     SourcePhase = "Pending"     // not looked at yet since it was changed
	SourceBuilding    SourcePhase = "Building"    // the image of the newest commit is being built; what was applied before stays
	SourceProgressing SourcePhase = "Progressing" // what is in the repository was applied, and is not ready yet
	SourceReady       SourcePhase = "Ready"       // what is in the repository was applied, and is ready
	SourceDegraded    SourcePhase = "Degraded"    // it was applied, and something of it is not well, or is missing
	SourceFailed      SourcePhase = "Failed"      // the newest commit could not be got or applied; what was applied before stays
	SourceWaiting     SourcePhase = "Waiting"     // nothing was promoted to it yet
	SourceSuspended   SourcePhase = "Suspended"   // left alone
)

// Settled reports whether nothing more happens unless the repository, the source, or the one that
// it follows changes.
func (p SourcePhase) Settled() bool {
	return p != SourcePending && p != SourceBuilding && p != SourceProgressing
}

// Applied reports whether the repository's content was applied, in any state of health.
func (p SourcePhase) Applied() bool {
	return p == SourceProgressing || p == SourceReady || p == SourceDegraded
}

// SourceStatus is what came of a source.
type SourceStatus struct {
	Phase              SourcePhase            `json:"phase" enum:"Pending,Building,Progressing,Ready,Degraded,Failed,Waiting,Suspended"`
	ObservedGeneration int64                  `json:"observedGeneration,omitempty" doc:"The generation of the spec that this speaks of."`
	ObservedSync       string                 `json:"observedSync,omitempty" doc:"The sync call that was answered last."`
	ObservedLook       string                 `json:"observedLook,omitempty" doc:"The last look that a webhook requested."`
	Commit             string                 `json:"commit,omitempty" doc:"The commit that is applied."`
	Tag                string                 `json:"tag,omitempty" doc:"The tag that led to the commit that is applied; absent if a branch or the commit itself is followed."`
	Attempted          string                 `json:"attempted,omitempty" doc:"The newest commit that was tried."`
	Revision           int64                  `json:"revision,omitempty" doc:"For app: the App's revision that it became."`
	Objects            int                    `json:"objects,omitempty" doc:"How many objects the commit brought."`
	CheckedAt          string                 `json:"checkedAt,omitempty" doc:"When the repository was asked last (RFC 3339)."`
	AppliedAt          string                 `json:"appliedAt,omitempty" doc:"When the commit was applied."`
	Build              *SourceBuildStatus     `json:"build,omitempty" doc:"Where build is set: the newest build. The image that runs is in the App's revision."`
	Hold               *SourceHold            `json:"hold,omitempty" doc:"After a rollback: where it is held; absent while it follows the repository."`
	Promotion          *SourcePromotionStatus `json:"promotion,omitempty" doc:"Where promote is set: the commit that was promoted, and what is awaited."`
	History            []SourceCommit         `json:"history,omitempty" doc:"The last commits that were applied, the newest first: ten at most."`
	Health             *SourceHealth          `json:"health,omitempty" doc:"How that is which was applied; absent while it is ready."`
	Error              *SourceError           `json:"error,omitempty" doc:"What went wrong last; absent once it is well."`
	Suspension         *SourceSuspension      `json:"suspension,omitempty" doc:"Why the agent does not follow it although its spec does not suspend it; absent otherwise."`
	Conditions         []Condition            `json:"conditions,omitempty" doc:"Its state in the form that Kubernetes' tools read."`
	// Previews is nil unless there are, or were, previews.
	Previews *SourcePreviewsStatus `json:"previews,omitempty" doc:"Where previews is set: the open requests."`
	// Report is written by its own sender, after the rest.
	Report *SourceReportStatus `json:"report,omitempty" doc:"Where report is set: what the forge has accepted."`
}

// SourceHold is the commit to which a source was rolled back.
type SourceHold struct {
	Commit string `json:"commit" doc:"The commit that it is held at."`
	After  string `json:"after,omitempty" doc:"The newest commit at the rollback: the source is held until there is another one; absent until the repository was asked."`
	Since  string `json:"since" doc:"When the agent came to it (RFC 3339)."`
}

// SourceCommit is a commit that was applied.
type SourceCommit struct {
	Commit    string `json:"commit"`
	Tag       string `json:"tag,omitempty" doc:"The tag that led to it."`
	AppliedAt string `json:"appliedAt" doc:"When it was applied (RFC 3339)."`
	Revision  int64  `json:"revision,omitempty" doc:"For app: the App's revision that it became."`
}

// SourceRollback is where a source is to go back to.
type SourceRollback struct {
	Commit string `json:"commit,omitempty" maxLength:"40" pattern:"^[0-9a-f]{7,40}$" doc:"A commit of status.history, by 7 digits or more; the one that was applied before the current one when empty." example:"0a1b2c3d4e5f"`
}

// maxSourceHistory bounds the commits that a source remembers.
const maxSourceHistory = 10

// WithApplied returns the history with a commit that was applied last. The same one again is no new
// entry.
func (s SourceStatus) WithApplied(c SourceCommit) []SourceCommit {
	before := s.History
	if len(before) > 0 && before[0].Commit == c.Commit {
		before = before[1:]
	}
	return append([]SourceCommit{c}, before[:min(len(before), maxSourceHistory-1)]...)
}

// Earlier returns the commit that was applied before the current one was for the first time; empty
// if it is not known.
func (s SourceStatus) Earlier() string {
	first := -1
	for i, c := range s.History {
		if c.Commit == s.Commit {
			first = i
		}
	}
	if first < 0 || first+1 == len(s.History) {
		return ""
	}
	return s.History[first+1].Commit
}

// Applied returns the commit of the history that begins with these digits; empty if that is none,
// or not one alone.
func (s SourceStatus) Applied(digits string) (commit string) {
	for _, c := range s.History {
		switch {
		case !strings.HasPrefix(c.Commit, digits), c.Commit == commit:
		case commit != "":
			return ""
		default:
			commit = c.Commit
		}
	}
	return commit
}

// SourceHealth is how that is doing which a source has brought.
type SourceHealth struct {
	Object    string     `json:"object,omitempty" doc:"What it speaks of: the first that is not ready, as KIND/NAMESPACE/NAME."`
	Message   string     `json:"message" doc:"What it waits for, or what is wrong."`
	Diagnosis *Diagnosis `json:"diagnosis,omitempty" doc:"What is wrong with what runs pods."`
}

// SourceSuspension is why the agent has suspended a source. It stands until the source is put
// again.
type SourceSuspension struct {
	Code      string `json:"code" doc:"Stable name." example:"runner_revoked"`
	Runner    string `json:"runner" doc:"Runner that put the source."`
	RequestID string `json:"requestId,omitempty" doc:"Request by which it did."`
	Message   string `json:"message"`
	Fix       string `json:"fix,omitempty"`
	Since     string `json:"since" doc:"When the agent suspended it (RFC 3339)."`
}

// SourceError is why a commit could not be got or applied.
type SourceError struct {
	Code    string `json:"code" doc:"Stable name." example:"ref_not_found"`
	Message string `json:"message"`
	Fix     string `json:"fix,omitempty"`
	Since   string `json:"since" doc:"When it was seen first (RFC 3339)."`
	Commit  string `json:"commit,omitempty" doc:"The commit at fault, where it is one's."`
}

// SourceList is the sources of a namespace.
type SourceList struct {
	Items []Source `json:"items" nullable:"false"`
	Page
}

var gitRefName = regexp.MustCompile(`^[^\x00-\x20\x7f~^:?*\[\\]+$`)

// Validate reports all that is wrong with the spec of a source of this name.
func (s SourceSpec) Validate(name string) []FieldError {
	v := &validation{}
	if !validSourceName(name) {
		v.add("path.name", "%q cannot be the name of a source: lower case letters, digits and '-', at most %d in all", printable.Clip(name), maxSourceName)
	}
	if _, err := ParseGitURL(s.URL); err != nil {
		v.add("url", "%v", err)
	}
	s.Ref.validate(v)
	s.validatePromotion(v, name)
	if !inRepository(s.Path) {
		v.add("path", "has to be a path within the repository, such as deploy/production")
	}
	if _, err := s.Every(); err != nil {
		v.add("interval", "%v", err)
	}
	s.validateType(v, name)
	s.validateBuild(v)
	s.validateReport(v)
	s.validatePreviews(v)
	return v.errs
}

func validSourceName(name string) bool { return len(name) <= maxSourceName && label.MatchString(name) }

// ValidSource reports whether a source can have this namespace and name.
func ValidSource(key Key) bool {
	return validSourceName(key.Name) && len(key.Namespace) <= maxLabel && label.MatchString(key.Namespace)
}

func (r GitRef) validate(v *validation) {
	given := 0
	for field, value := range map[string]string{"ref.branch": r.Branch, "ref.tag": r.Tag, "ref.commit": r.Commit} {
		if value == "" {
			continue
		}
		given++
		if !gitRefName.MatchString(value) || strings.Contains(value, "..") || strings.HasPrefix(value, "-") {
			v.add(field, "is not a name that Git takes")
		}
	}
	if r.Semver != "" {
		given++
		if _, err := semver.NewConstraint(r.Semver); err != nil {
			v.add("ref.semver", "is not a range of versions, such as >=1.2.0 <2 or 1.4.x")
		}
	}
	if given > 1 {
		v.add("ref", "at most one of branch, tag, semver and commit may be set")
	}
}

func (s SourceSpec) validateType(v *validation, name string) {
	switch s.Type {
	case SourceApp:
		if s.Path == "" && s.AppSpec == "" {
			v.add("path", "is needed for an app: the file with its spec")
		}
		if s.Path != "" && s.AppSpec != "" {
			v.add("path", "the App's spec is in appSpec: only one of the two may be set")
		}
		if s.App == "" && !ValidAppName(name) {
			v.add("app", "is needed: %q cannot be the name of an App", printable.Clip(name))
		}
		if s.Prune {
			v.add("prune", "is not for an app: delete the App itself")
		}
		if s.ForceConflicts {
			v.add("forceConflicts", "is not for an app: its fields are its own")
		}
	case SourceManifests, SourceKustomize, SourceHelm:
		if s.App != "" {
			v.add("app", "is for a source of type app")
		}
		if s.AppSpec != "" {
			v.add("appSpec", "is for a source of type app")
		}
	default:
		v.add("type", "has to be app, manifests, kustomize or chart")
	}
	if s.Chart == nil {
		return
	}
	if s.Type != SourceHelm {
		v.add("chart", "is for a source of type chart")
	}
	for i, file := range s.Chart.ValuesFiles {
		if file == "" || !inRepository(file) {
			v.add(fmt.Sprintf("chart.valuesFiles[%d]", i), "has to be a path within the repository")
		}
	}
	if len(s.Chart.Values) > maxSourceValues {
		v.add("chart.values", "has more than %d bytes", maxSourceValues)
	}
}

// inRepository reports whether a path stays in the repository.
func inRepository(p string) bool {
	return !strings.ContainsAny(p, "\\\x00") && !strings.HasPrefix(p, "/") && (p == "" || path.Clean(p) != ".." && !strings.HasPrefix(path.Clean(p), "../"))
}

// Every returns how often to look for a new commit.
func (s SourceSpec) Every() (time.Duration, error) {
	if s.Interval == "" {
		return DefaultSourceInterval, nil
	}
	d, err := time.ParseDuration(s.Interval)
	if err != nil || d < MinSourceInterval || d > MaxSourceInterval {
		return 0, fmt.Errorf("has to be between %s and %s", "30s", "24h")
	}
	return d, nil
}

// AppName returns the name of the App that a source of type app brings.
func (s Source) AppName() string {
	return cmp.Or(s.Spec.App, s.Name)
}

// SourceOf returns the source that brings an App, among those of the App's namespace; nil if none
// does.
func SourceOf(app string, sources []Source) *Source {
	i := slices.IndexFunc(sources, func(s Source) bool { return s.Spec.Type == SourceApp && s.AppName() == app })
	if i < 0 {
		return nil
	}
	return &sources[i]
}

// TagOf returns the tag that led to a commit of the history; empty if none did.
func (s SourceStatus) TagOf(commit string) string {
	for _, c := range s.History {
		if c.Commit == commit {
			return c.Tag
		}
	}
	return ""
}
