package runnerapi

import (
	"cmp"
	"fmt"

	"github.com/pipeops/pipeops-vm-agent/internal/printable"
)

// DefaultBuildNamespace is the namespace that deployments/build-rights.yaml creates.
const DefaultBuildNamespace = "pipeops-builds"

// SourceBuild is how the image of an App that names none is made of each commit.
type SourceBuild struct {
	Namespace      string `json:"namespace,omitempty" maxLength:"63" pattern:"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$" doc:"Where it is built, and where the secrets and config maps named here are: a namespace that allows builds; pipeops-builds when empty."`
	Context        string `json:"context,omitempty" maxLength:"1024" doc:"Folder of the repository that is the build's context; the root when empty."`
	GitCredentials string `json:"gitCredentials,omitempty" maxLength:"253" doc:"Secret to get the repository with, there; of the name that credentials has when empty."`
	BuildTemplate
}

// SourceBuildStatus is the newest build of a source.
type SourceBuildStatus struct {
	Namespace string        `json:"namespace" doc:"With the name, the build whose log build-logs reads."`
	Name      string        `json:"name"`
	Run       string        `json:"run" doc:"Which run of it: the commit, what is asked of the build, and how often that was tried again."`
	Commit    string        `json:"commit" doc:"The commit that is built."`
	Tag       string        `json:"tag,omitempty" doc:"The tag that led to it."`
	Phase     BuildPhase    `json:"phase" enum:"Pending,Fetching,Building,Pushing,Succeeded,Failed"`
	Message   string        `json:"message,omitempty" doc:"What a run that is in progress waits for."`
	Image     string        `json:"image,omitempty" doc:"The image by its digest: what is deployed."`
	Failure   *BuildFailure `json:"failure,omitempty" doc:"Why there is none; without the end of the log."`
}

// Key returns the build's.
func (b SourceBuildStatus) Key() Key { return Key{Namespace: b.Namespace, Name: b.Name} }

// BuildKey returns the build of a source that has one. Several namespaces share one for builds, so
// the name contains the source.
func (s Source) BuildKey() Key {
	key := Key{Namespace: DefaultBuildNamespace, Name: hashed("git-"+s.Name, "", s.Namespace+"/"+s.Name, maxBuildName)}
	if s.Spec.Build != nil && s.Spec.Build.Namespace != "" {
		key.Namespace = s.Spec.Build.Namespace
	}
	return key
}

// BuildSpec returns what to build of a commit.
func (s SourceSpec) BuildSpec(commit, run string) BuildSpec {
	b := s.Build
	credentials := cmp.Or(b.GitCredentials, s.Credentials)
	return BuildSpec{
		Git:           BuildGit{URL: s.URL, Ref: GitRef{Commit: commit}, Path: b.Context, Credentials: credentials},
		BuildTemplate: b.BuildTemplate, Run: run,
	}
}

func (s SourceSpec) validateBuild(v *validation) {
	b := s.Build
	if b == nil {
		if s.AppSpec != "" {
			v.add("appSpec", "is for a source that builds its image: set build")
		}
		return
	}
	if s.Type != SourceApp {
		v.add("build", "is for a source of type app")
	}
	inner := &validation{}
	if b.Namespace != "" && !label.MatchString(b.Namespace) {
		inner.add("namespace", "%q is not a name of a namespace", printable.Clip(b.Namespace))
	}
	inner.buildPath("context", b.Context)
	inner.optionalName("gitCredentials", b.GitCredentials)
	b.validate(inner)
	if tag, err := b.Repository(); err == nil && tag.TagStr() != "" {
		inner.add("image", "has a tag: leave it out, it is the first 12 digits of the commit")
	}
	v.within("build", inner.errs)
}

// within adds errors of a part.
func (v *validation) within(part string, errs []FieldError) {
	for _, e := range errs {
		v.add(fmt.Sprintf("%s.%s", part, e.Field), "%s", e.Message)
	}
}
