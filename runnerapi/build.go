package runnerapi

import (
	"path"
	"regexp"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/pipeops/pipeops-vm-agent/internal/printable"
)

// Bounds of a build.
const (
	DefaultBuildDeadline = time.Hour
	DefaultBuildTTL      = 7 * 24 * time.Hour
	DefaultBuildHistory  = 5
	maxBuildName         = 40 // a Job's name is followed by what identifies its run
)

// BuildSpec describes what image is made of which repository.
type BuildSpec struct {
	Git BuildGit `json:"git" doc:"Where the files are."`
	BuildTemplate
	Run string `json:"run,omitempty" maxLength:"128" pattern:"^[A-Za-z0-9._:-]+$" doc:"Names the run. Under another name the same spec is built again; under the same it is not." example:"build-1742"`
}

// BuildTemplate is what builds of one image have in common.
type BuildTemplate struct {
	Dockerfile      string            `json:"dockerfile,omitempty" maxLength:"1024" doc:"The Dockerfile, seen from the build's context; Dockerfile when empty." example:"Dockerfile"`
	Target          string            `json:"target,omitempty" maxLength:"128" pattern:"^[A-Za-z0-9][A-Za-z0-9_.-]*$" doc:"Stage of the Dockerfile to stop at; the last when empty."`
	Args            map[string]string `json:"args,omitempty" maxProperties:"64" doc:"Build arguments. They are seen in the cluster and in the image's history: no secrets."`
	Image           string            `json:"image" minLength:"3" maxLength:"512" doc:"REGISTRY/REPOSITORY[:TAG] to push to. Without a tag it is the first 12 digits of the commit." example:"registry.example.com/shop/web"`
	PushCredentials string            `json:"pushCredentials,omitempty" maxLength:"253" doc:"Secret of type kubernetes.io/dockerconfigjson to push with. The Dockerfile's steps cannot reach it." example:"registry"`
	PullCredentials string            `json:"pullCredentials,omitempty" maxLength:"253" doc:"Secret of that type to pull base images with. A step of the Dockerfile that means ill can read it: let it do nothing but pull."`
	CA              *BuildCA          `json:"ca,omitempty" doc:"Certificates to trust besides the system's, of the registry and of where base images are."`
	Resources       Resources         `json:"resources,omitzero" doc:"CPU and memory of the build."`
	DeadlineSeconds *int64            `json:"deadlineSeconds,omitempty" minimum:"10" maximum:"86400" doc:"When the run is given up; 3600 when absent."`
	TTLSeconds      *int32            `json:"ttlSeconds,omitempty" minimum:"60" maximum:"31536000" doc:"When a finished run is removed, with its log and its outcome; 604800, a week, when absent."`
	History         int               `json:"history,omitempty" minimum:"1" maximum:"20" doc:"How many runs are kept, this one included; 5 when absent."`
}

// BuildGit is where a build's files are.
type BuildGit struct {
	URL         string `json:"url" minLength:"8" maxLength:"2048" doc:"Address of the repository: https://HOST/PATH, ssh://USER@HOST/PATH or USER@HOST:PATH." example:"https://git.example.com/shop/web.git"`
	Ref         GitRef `json:"ref,omitzero" doc:"What to build; the repository's default branch when empty."`
	Path        string `json:"path,omitempty" maxLength:"1024" doc:"Folder of the repository that is the build's context; the root when empty."`
	Credentials string `json:"credentials,omitempty" maxLength:"253" doc:"Secret in the same namespace: url (the repositories that it is for), then username and password, or identity and known_hosts; ca.crt for a server with its own CA." example:"git-deploy"`
}

// BuildCA is where certificates of authorities are. One of the two is given.
type BuildCA struct {
	ConfigMap string `json:"configMap,omitempty" maxLength:"253" doc:"ConfigMap whose values are certificates in PEM."`
	Secret    string `json:"secret,omitempty" maxLength:"253" doc:"Secret whose key ca.crt has certificates in PEM and nothing else. No other key of it is mounted."`
}

// BuildPhase is how far a run has come.
type BuildPhase string

// The phases of a run.
const (
	BuildPending   BuildPhase = "Pending"   // its pod does not run yet
	BuildFetching  BuildPhase = "Fetching"  // the commit is being got
	BuildBuilding  BuildPhase = "Building"  // the Dockerfile's steps are carried out
	BuildPushing   BuildPhase = "Pushing"   // the image is being pushed
	BuildSucceeded BuildPhase = "Succeeded" // it is in the registry
	BuildFailed    BuildPhase = "Failed"
)

// Ended reports whether nothing more will happen.
func (p BuildPhase) Ended() bool { return p == BuildSucceeded || p == BuildFailed }

// Build is the newest run of a build, and what is known of those before.
type Build struct {
	Namespace string      `json:"namespace"`
	Name      string      `json:"name"`
	CreatedAt time.Time   `json:"createdAt,omitzero" doc:"When this run was started."`
	Runner    string      `json:"runner,omitempty" doc:"Who started it."`
	Spec      BuildSpec   `json:"spec"`
	Status    BuildStatus `json:"status"`
	Before    []BuildRun  `json:"before,omitempty" doc:"Earlier runs that are kept, the newest first. Not in a list."`
}

// BuildStatus is what came of a run.
type BuildStatus struct {
	Phase      BuildPhase    `json:"phase" enum:"Pending,Fetching,Building,Pushing,Succeeded,Failed"`
	Message    string        `json:"message,omitempty" doc:"What a run that is in progress waits for."`
	Commit     string        `json:"commit,omitempty" doc:"The commit that is built."`
	Tag        string        `json:"tag,omitempty" doc:"The name with its tag that the image was pushed to." example:"registry.example.com/shop/web:0a1b2c3d4e5f"`
	Image      string        `json:"image,omitempty" doc:"The image by its digest: what to deploy." example:"registry.example.com/shop/web@sha256:…"`
	StartedAt  *time.Time    `json:"startedAt,omitempty"`
	FinishedAt *time.Time    `json:"finishedAt,omitempty"`
	Seconds    float64       `json:"seconds,omitempty" doc:"How long it took."`
	Failure    *BuildFailure `json:"failure,omitempty"`
}

// BuildRun is an earlier run in short.
type BuildRun struct {
	Run       string     `json:"run,omitempty"`
	CreatedAt time.Time  `json:"createdAt,omitzero"`
	Phase     BuildPhase `json:"phase" enum:"Pending,Fetching,Building,Pushing,Succeeded,Failed"`
	Commit    string     `json:"commit,omitempty"`
	Image     string     `json:"image,omitempty"`
	Cause     string     `json:"cause,omitempty"`
}

// BuildFailure is why there is no image.
type BuildFailure struct {
	Stage     string   `json:"stage" enum:"start,fetch,build,push" doc:"How far it had come."`
	Cause     string   `json:"cause" doc:"Stable name." example:"step_failed"`
	Message   string   `json:"message"`
	Fix       string   `json:"fix,omitempty"`
	Step      string   `json:"step,omitempty" doc:"The step of the Dockerfile that failed." example:"[2/3] RUN make"`
	Line      int      `json:"line,omitempty" doc:"Its line in the Dockerfile."`
	LastLines []string `json:"lastLines,omitempty" doc:"The end of the log."`
}

// BuildList is the builds of a namespace.
type BuildList struct {
	Items []Build `json:"items" nullable:"false"`
	Page
}

var buildArg = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)

const maxBuildArg = 4096

// Validate reports all that is wrong with a build of this name.
func (s BuildSpec) Validate(buildName string) []FieldError {
	v := &validation{}
	if len(buildName) > maxBuildName || !label.MatchString(buildName) {
		v.add("path.name", "%q cannot be the name of a build: lower case letters, digits and '-', at most %d in all", printable.Clip(buildName), maxBuildName)
	}
	if _, err := ParseGitURL(s.Git.URL); err != nil {
		v.add("git.url", "%v", err)
	}
	ref := &validation{}
	s.Git.Ref.validate(ref)
	v.within("git", ref.errs)
	v.buildPath("git.path", s.Git.Path)
	v.optionalName("git.credentials", s.Git.Credentials)
	s.validate(v)
	return v.errs
}

func (v *validation) buildPath(field, p string) {
	if !inRepository(p) || strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		v.add(field, "has to be a path within the repository")
	}
}

func (v *validation) optionalName(field, name string) {
	if name != "" {
		v.objectName(field, name)
	}
}

func (s BuildTemplate) validate(v *validation) {
	v.buildPath("dockerfile", s.Dockerfile)
	if strings.HasSuffix(s.Dockerfile, "/") {
		v.add("dockerfile", "has to be a file")
	}
	v.optionalName("pushCredentials", s.PushCredentials)
	v.optionalName("pullCredentials", s.PullCredentials)
	s.validateCA(v)
	s.validateArgs(v)
	v.resources("resources", s.Resources)
	if len(s.Resources.Devices) > 0 {
		v.add("resources.devices", "a build takes no devices: leave it out")
	}
	if _, err := s.Repository(); err != nil {
		v.add("image", "is not a REGISTRY/REPOSITORY[:TAG] to push to: %v", err)
	}
}

func (s BuildTemplate) validateCA(v *validation) {
	switch ca := s.CA; {
	case ca == nil:
	case (ca.ConfigMap == "") == (ca.Secret == ""):
		v.add("ca", "exactly one of configMap and secret must be set")
	case ca.ConfigMap != "":
		v.objectName("ca.configMap", ca.ConfigMap)
	default:
		v.objectName("ca.secret", ca.Secret)
	}
}

func (s BuildTemplate) validateArgs(v *validation) {
	for _, key := range sortedKeys(s.Args) {
		if !buildArg.MatchString(key) {
			v.add("args."+printable.Clip(key), "is not a valid name of a build argument: letters, digits and '_', no digit first")
		}
		if len(s.Args[key]) > maxBuildArg || strings.ContainsRune(s.Args[key], 0) {
			v.add("args."+printable.Clip(key), "has more than %d bytes, or a zero byte", maxBuildArg)
		}
	}
}

// Repository returns where the image is pushed to. Its tag is empty if the commit becomes the tag.
func (s BuildTemplate) Repository() (name.Tag, error) {
	tag, err := name.NewTag(s.Image, name.WithDefaultTag(""), name.StrictValidation)
	if err != nil && !strings.Contains(s.Image[strings.LastIndex(s.Image, "/")+1:], ":") {
		// Strict validation requires a tag, which the commit will be.
		if tag, err = name.NewTag(s.Image+":commit", name.StrictValidation); err == nil {
			tag, err = name.NewTag(s.Image, name.WithDefaultTag(""))
		}
	}
	return tag, err
}

// File returns the Dockerfile's path within the context.
func (s BuildTemplate) File() string {
	if s.Dockerfile == "" {
		return "Dockerfile"
	}
	return path.Clean(s.Dockerfile)
}
