package runnerapi

import (
	"net/url"
	"strings"
	"unicode"

	"github.com/pipeops/pipeops-vm-agent/internal/scope"
)

// Forge is a kind of server that hosts Git repositories and shows a state beside each commit.
type Forge string

// The forges to which the agent reports. Gitea's API is Forgejo's, too.
const (
	GitHub Forge = "github"
	GitLab Forge = "gitlab"
	Gitea  Forge = "gitea"
)

// SourceReport is where the agent reports what became of a source's commits.
type SourceReport struct {
	Forge          Forge  `json:"forge" enum:"github,gitlab,gitea" doc:"The kind of the repository's server; gitea for Forgejo, too."`
	Credentials    string `json:"credentials" minLength:"1" maxLength:"253" pattern:"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$" doc:"Secret in the same namespace: url (the repositories that it is for, as https://), and token; or githubAppID, githubAppInstallationID and githubAppPrivateKey. api names an API at another address than the repository's server; ca.crt its CA." example:"git-status"`
	API            string `json:"api,omitempty" maxLength:"2048" doc:"Address of the forge's API, where that does not follow from the repository's host. The Secret has to name it, too." example:"https://git.example.com/api/v4"`
	Environment    string `json:"environment,omitempty" maxLength:"255" doc:"For github and gitlab: also report deployments to this environment." example:"production"`
	EnvironmentURL string `json:"environmentUrl,omitempty" maxLength:"255" doc:"Where what is deployed can be seen; the first public address of the App when empty." example:"https://shop.example.com"`
}

// ReportState is a state of a commit, as forges know it.
type ReportState string

// The states of a commit.
const (
	ReportPending ReportState = "pending" // it is being built or deployed
	ReportSuccess ReportState = "success" // it is deployed, and ready
	ReportFailure ReportState = "failure" // it could not be deployed, or is not healthy
	ReportError   ReportState = "error"   // the agent could not try it, or a later commit came first
)

// SourceReportStatus is what the forge has accepted, and why it has not accepted more.
type SourceReportStatus struct {
	ObservedGeneration int64            `json:"observedGeneration,omitempty" doc:"The generation of the spec by which it was sent."`
	State              ReportState      `json:"state,omitempty" enum:"pending,success,failure,error" doc:"The state that the forge has accepted last."`
	Commit             string           `json:"commit,omitempty" doc:"The commit that it is about."`
	Description        string           `json:"description,omitempty" doc:"The text beside it."`
	URL                string           `json:"url,omitempty" doc:"The address of what is deployed, which was sent with it."`
	SentAt             string           `json:"sentAt,omitempty" doc:"When the forge accepted it (RFC 3339)."`
	SucceededAt        string           `json:"succeededAt,omitempty" doc:"When the commit was a success first. Ten minutes later a success is final."`
	Deployment         *ForgeDeployment `json:"deployment,omitempty" doc:"For github and gitlab: the newest deployment."`
	Comment            int64            `json:"comment,omitempty" doc:"ID of the comment on the request that it is a preview of."`
	Error              *SourceError     `json:"error,omitempty" doc:"Why the forge has not accepted a newer state; absent once it has."`
	RetryAt            string           `json:"retryAt,omitempty" doc:"When the agent tries again (RFC 3339). After source sync it does so at once, unless the forge has asked for the pause."`
}

// ForgeDeployment is a deployment that the agent has created at a forge.
type ForgeDeployment struct {
	ID          int64  `json:"id"`
	Commit      string `json:"commit"`
	Environment string `json:"environment"`
}

func (s SourceSpec) validateReport(v *validation) {
	r := s.Report
	if r == nil {
		return
	}
	switch r.Forge {
	case GitHub, GitLab, Gitea:
	default:
		v.add("report.forge", "has to be github, gitlab or gitea")
	}
	if r.Credentials == "" {
		v.add("report.credentials", "is needed: the Secret with the token for the forge")
	}
	v.optionalName("report.credentials", r.Credentials)
	if r.API != "" {
		if _, err := scope.Parse(r.API); err != nil || !strings.HasPrefix(r.API, "https://") {
			v.add("report.api", "has to be https://HOST/PATH, without user, query and fragment")
		}
	}
	if r.Environment != "" && r.Forge != GitHub && r.Forge != GitLab {
		v.add("report.environment", "is for github and gitlab")
	}
	if strings.ContainsFunc(r.Environment, unicode.IsControl) {
		v.add("report.environment", "has control characters")
	}
	if u, err := url.Parse(r.EnvironmentURL); r.EnvironmentURL != "" && (err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.User != nil) {
		v.add("report.environmentUrl", "has to be https://HOST/PATH or http://HOST/PATH, without a user")
	}
}
