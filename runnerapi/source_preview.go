package runnerapi

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Bounds of previews.
const (
	DefaultPreviewLimit  = 10
	DefaultPreviewExpiry = 7 * 24 * time.Hour
	MinPreviewExpiry     = 10 * time.Minute
	MaxPreviewExpiry     = 365 * 24 * time.Hour
	// previewInterval is how often a preview is tried again: its commit does not change.
	previewInterval = "1h"
)

// SourcePreviews is how the open pull requests of a repository are deployed, each in a namespace of
// its own.
type SourcePreviews struct {
	Path        string          `json:"path,omitempty" maxLength:"1024" doc:"What of the request's commit is deployed; path of the source when empty." example:"overlays/preview"`
	ValuesFiles []string        `json:"valuesFiles,omitempty" maxItems:"16" doc:"For chart: further files with values, after those of chart."`
	Label       string          `json:"label,omitempty" maxLength:"255" doc:"Only requests with this label have a preview; all when empty." example:"preview"`
	Limit       int32           `json:"limit,omitempty" minimum:"1" maximum:"50" doc:"How many there are at most: of the requests whose commits are the newest. 10 when absent."`
	ExpireAfter string          `json:"expireAfter,omitempty" maxLength:"16" pattern:"^([0-9]+(s|m|h))+$" doc:"How long a commit has a preview: 10m to 8760h; 168h when empty." example:"48h"`
	Secrets     []string        `json:"secrets,omitempty" maxItems:"16" doc:"Secrets of the source's namespace that are copied into each preview's. A fork's has none."`
	Quota       *NamespaceQuota `json:"quota,omitempty" doc:"Bounds of each preview's namespace; 20 pods, and requests of 2 CPUs and 4Gi of memory, when absent."`
	Comment     bool            `json:"comment,omitempty" doc:"Write the address and the state into a comment on the request."`
	Visitors    *Visitors       `json:"visitors,omitempty" doc:"Whom the Apps of previews let in, in place of what their files say. When absent, and a file has visitors sign in nowhere: everyone whom the control plane's identity provider knows, if it has one."`
	Open        bool            `json:"open,omitempty" doc:"Everyone may visit the previews whose files do not say otherwise, also where the control plane has an identity provider."`
}

// SourcePreviewOf is of which source and request a preview is. The agent alone writes it.
type SourcePreviewOf struct {
	Namespace string `json:"namespace"`
	Source    string `json:"source"`
	Number    int64  `json:"number" doc:"Number of the pull or merge request."`
	Comment   bool   `json:"comment,omitempty"`
	// Visitors and SignIn are whom its App lets in.
	Visitors *Visitors `json:"visitors,omitempty"`
	SignIn   bool      `json:"signIn,omitempty" doc:"Visitors sign in by the control plane, unless visitors or the App's file says otherwise."`
}

// Admits returns whom the App of a preview lets in whose file says this.
func (p SourcePreviewOf) Admits(file *Visitors) *Visitors {
	if p.Visitors != nil {
		return p.Visitors
	}
	if !p.SignIn || file != nil && (file.BasicAuthSecret != "" || file.SignIn != nil || file.ServiceTokensSecret != "") {
		return file
	}
	admitted := Visitors{}
	if file != nil {
		admitted = *file
	}
	admitted.SignIn = &SignIn{Emails: []string{everyone}}
	return &admitted
}

// Key returns the source's.
func (p SourcePreviewOf) Key() Key { return Key{Namespace: p.Namespace, Name: p.Source} }

// PreviewState is whether a request has a preview.
type PreviewState string

// The states of a preview.
const (
	PreviewActive        PreviewState = "Active"
	PreviewNeedsApproval PreviewState = "NeedsApproval" // of a fork, whose commit was not approved
	PreviewOverLimit     PreviewState = "OverLimit"     // there are as many newer ones as there may be
	PreviewExpired       PreviewState = "Expired"       // until there is another commit
	PreviewFailed        PreviewState = "Failed"        // error says why
)

// SourcePreviewsStatus is the open requests of a source's repository.
type SourcePreviewsStatus struct {
	Observed  string          `json:"observed,omitempty" doc:"The spec, calls and events that this answers."`
	CheckedAt string          `json:"checkedAt,omitempty" doc:"When the forge was asked last (RFC 3339)."`
	Error     *SourceError    `json:"error,omitempty" doc:"Why the forge gave no requests; absent once it did."`
	Items     []SourcePreview `json:"items,omitempty" doc:"The open requests that have a preview, or would have one."`
	Warning   string          `json:"warning,omitempty" doc:"Set while everyone may visit the previews although previews.open is not set."`
}

// SourcePreview is an open pull or merge request.
type SourcePreview struct {
	Number    int64        `json:"number" doc:"Number of the pull or merge request."`
	Branch    string       `json:"branch,omitempty"`
	Commit    string       `json:"commit"`
	Fork      bool         `json:"fork,omitempty" doc:"The commit is in another repository, where others may write."`
	State     PreviewState `json:"state" enum:"Active,NeedsApproval,OverLimit,Expired,Failed"`
	Namespace string       `json:"namespace,omitempty" doc:"Where the preview is. Its source there has the name of this one."`
	Since     string       `json:"since" doc:"When the agent saw the commit first (RFC 3339)."`
	ExpiresAt string       `json:"expiresAt,omitempty" doc:"When the preview is deleted, unless another commit comes (RFC 3339)."`
	Error     *SourceError `json:"error,omitempty" doc:"Why there is no preview, or an older one."`
	// Phase and the rest are known to list-source-previews.
	Phase       SourcePhase  `json:"phase,omitempty" doc:"Phase of the preview's source; in list-source-previews alone."`
	SourceError *SourceError `json:"sourceError,omitempty" doc:"What is wrong with the preview's source; in list-source-previews alone."`
	URL         string       `json:"url,omitempty" doc:"Where the preview is served; in list-source-previews alone."`
}

// SourcePreviewList is the previews of a source.
type SourcePreviewList struct {
	Items     []SourcePreview `json:"items" nullable:"false"`
	CheckedAt string          `json:"checkedAt,omitempty" doc:"When the forge was asked last (RFC 3339)."`
	Error     *SourceError    `json:"error,omitempty" doc:"Why the forge gave no requests; absent once it did."`
	Warning   string          `json:"warning,omitempty" doc:"Set while everyone may visit the previews although previews.open is not set."`
}

// PreviewNamespace returns the namespace of the preview of a request.
func PreviewNamespace(source Key, number int64) string {
	n := strconv.FormatInt(number, 10)
	return hashed(source.Namespace+"-"+source.Name, "-"+n, source.String()+"#"+n, maxLabel)
}

// hashed returns a name that begins with a readable part, as far as that fits, and is another one
// for each identity.
func hashed(readable, suffix, identity string, most int) string {
	const digits = 8
	sum := sha256.Sum256([]byte(identity))
	readable = readable[:min(len(readable), most-len(suffix)-1-digits)]
	return strings.Trim(readable, "-") + suffix + "-" + hex.EncodeToString(sum[:digits/2])
}

// Most returns how many previews there may be.
func (p SourcePreviews) Most() int { return int(cmp.Or(p.Limit, DefaultPreviewLimit)) }

// Expiry returns how long a commit has a preview.
func (p SourcePreviews) Expiry() (time.Duration, error) {
	if p.ExpireAfter == "" {
		return DefaultPreviewExpiry, nil
	}
	d, err := time.ParseDuration(p.ExpireAfter)
	if err != nil || d < MinPreviewExpiry || d > MaxPreviewExpiry {
		return 0, fmt.Errorf("has to be between 10m and 8760h")
	}
	return d, nil
}

func (s SourceSpec) validatePreviews(v *validation) {
	if s.PreviewOf != nil {
		v.add("previewOf", "is written by the agent alone: set previews on the source itself")
	}
	p := s.Previews
	if p == nil {
		return
	}
	if s.Report == nil {
		v.add("report", "is needed for previews: the forge whose pull requests they are of")
	}
	if !inRepository(p.Path) {
		v.add("previews.path", "has to be a path within the repository, such as overlays/preview")
	}
	if p.Path != "" && s.AppSpec != "" {
		v.add("previews.path", "the App's spec is in appSpec: only one of the two may be set")
	}
	if len(p.ValuesFiles) > 0 && s.Type != SourceHelm {
		v.add("previews.valuesFiles", "is for a source of type chart")
	}
	for i, file := range p.ValuesFiles {
		if file == "" || !inRepository(file) {
			v.add(fmt.Sprintf("previews.valuesFiles[%d]", i), "has to be a path within the repository")
		}
	}
	if _, err := p.Expiry(); err != nil {
		v.add("previews.expireAfter", "%v", err)
	}
	for i, name := range p.Secrets {
		v.objectName(fmt.Sprintf("previews.secrets[%d]", i), name)
	}
	if p.Visitors != nil {
		if p.Open {
			v.add("previews.open", "has to be left out with previews.visitors: only one of the two may be set")
		}
		app := AppSpec{Image: "preview", Ports: []Port{{Port: 80}}, Ingress: &Ingress{Public: true, Visitors: p.Visitors}}
		for _, e := range app.Validate() {
			if at, ok := strings.CutPrefix(e.Field, "ingress.visitors"); ok {
				v.add("previews.visitors"+at, "%s", e.Message)
			}
		}
	}
	if p.Quota != nil {
		inner := &validation{}
		for _, e := range (NamespaceSpec{Quota: p.Quota, Limits: &PreviewDefaults}).Validate() {
			inner.add(strings.TrimPrefix(e.Field, "quota."), "%s", e.Message)
		}
		v.within("previews.quota", inner.errs)
	}
}

// PreviewDefaults is what a container of a preview gets that names none of its own: without
// requests, a quota would refuse it.
var PreviewDefaults = NamespaceDefaults{
	Requests: ResourceAmounts{CPU: "50m", Memory: "128Mi"}, Limits: ResourceAmounts{CPU: "1", Memory: "512Mi"},
}

// Bounds returns the namespace of a preview.
func (p SourcePreviews) Bounds() NamespaceSpec {
	quota := p.Quota
	if quota == nil {
		quota = &NamespaceQuota{Requests: ResourceAmounts{CPU: "2", Memory: "4Gi"}, Pods: new(int32(20))}
	}
	return NamespaceSpec{Quota: quota, Limits: &PreviewDefaults}
}

// Preview returns the source that a request's commit becomes in the namespace of its preview.
func (s Source) Preview(number int64, commit string) Source {
	p, of := s.Spec.Previews, s.Spec
	of.Previews, of.Promote, of.Suspend = nil, nil, false
	of.DecryptionKeys = "" // who writes a request does not see what is encrypted
	of.PreviewOf = &SourcePreviewOf{Namespace: s.Namespace, Source: s.Name, Number: number, Comment: p.Comment, Visitors: p.Visitors}
	of.Ref, of.Path = GitRef{Commit: commit}, cmp.Or(p.Path, of.Path)
	of.Prune, of.Interval = of.Type != SourceApp, previewInterval
	if len(p.ValuesFiles) > 0 {
		chart := SourceChart{}
		if of.Chart != nil {
			chart = *of.Chart
		}
		chart.ValuesFiles = append(append([]string{}, chart.ValuesFiles...), p.ValuesFiles...)
		of.Chart = &chart
	}
	if of.Report != nil {
		report := *of.Report
		report.EnvironmentURL = ""
		if report.Environment != "" {
			report.Environment = fmt.Sprintf("preview-%s-%d", s.Name, number)
		}
		of.Report = &report
	}
	return Source{Namespace: PreviewNamespace(Key{Namespace: s.Namespace, Name: s.Name}, number), Name: s.Name, Spec: of}
}
