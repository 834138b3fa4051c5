package forge

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/internal/source/git"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// patience bounds all requests of one report.
const patience = time.Minute

// Report is the state of a commit.
type Report struct {
	State       runnerapi.ReportState
	Commit      string
	Context     string // what tells this state from those of others
	Description string
	URL         string // where what is deployed can be seen
	Page        string // with what the state is about, for people
	// Superseded has a forge that knows this state show it, rather than an error.
	Superseded  bool
	Environment string // of deployments, at GitHub and GitLab; none if empty
	Ref         string // the branch of the commit, where it is known
	// Deployment is the one that was created for this commit; 0 if none was.
	Deployment int64
}

// Description limits, in characters. We count bytes, which are as many or more.
var descriptions = map[runnerapi.Forge]int{runnerapi.GitHub: 140, runnerapi.GitLab: 255, runnerapi.Gitea: 255}

// maxURL is GitLab's limit on target_url.
const maxURL = 255

// Send sends a report, and returns the deployment that it is part of; also with an error, since the
// deployment may exist already. Its errors are *git.Error, in a *PauseError too, except the
// context's.
func Send(ctx context.Context, remote git.Remote, r Repository, c Credentials, report Report) (deployment int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	rights := reportRights
	if report.Environment != "" {
		rights = deployRights
	}
	at, err := open(ctx, remote, r, c, rights)
	if err != nil {
		return report.Deployment, err
	}
	defer at.close()
	for _, link := range []*string{&report.URL, &report.Page} {
		if len(*link) > maxURL {
			*link = ""
		}
	}
	switch r.kind {
	case runnerapi.GitHub:
		return at.sendGitHub(ctx, report)
	case runnerapi.GitLab:
		return at.sendGitLab(ctx, report)
	}
	return 0, at.status(ctx, report)
}

// Clip returns as much of a description as a forge takes, in one line.
func Clip(kind runnerapi.Forge, description string) string {
	return clip(description, descriptions[kind])
}

// clip returns at most that many bytes of a text, in one line.
func clip(s string, most int) string {
	s = printable.Line(strings.ReplaceAll(strings.TrimSpace(s), "\n", "; "), false)
	if len(s) <= most {
		return s
	}
	return printable.Shorten(s, most-len("…"))
}

// link returns where the state of a commit leads: to what is deployed once that is ready, and to
// its page else, where the cause is.
func (r Report) link() string {
	if r.State == runnerapi.ReportSuccess {
		return cmp.Or(r.URL, r.Page)
	}
	return cmp.Or(r.Page, r.URL)
}

type commitStatus struct {
	State       string `json:"state"`
	Name        string `json:"name,omitempty"`    // GitLab's
	Context     string `json:"context,omitempty"` // the others'
	Description string `json:"description,omitempty"`
	TargetURL   string `json:"target_url,omitempty"`
}

// status sends a commit status as GitHub and Gitea take it.
func (c *client) status(ctx context.Context, r Report) error {
	return c.post(ctx, "/repos/"+c.repository.escaped()+"/statuses/"+r.Commit, commitStatus{
		State: string(r.State), Context: r.Context, Description: r.Description, TargetURL: r.link(),
	}, nil)
}

var gitlabStates = map[runnerapi.ReportState]string{
	runnerapi.ReportPending: "pending", runnerapi.ReportSuccess: "success", runnerapi.ReportFailure: "failed", runnerapi.ReportError: "failed",
}

// sendGitLab sends the state of the deployment, and then that of the commit, as sendGitHub does.
func (c *client) sendGitLab(ctx context.Context, r Report) (int64, error) {
	state := gitlabStates[r.State]
	if r.Superseded {
		state = "canceled"
	}
	var err error
	if r.Environment != "" && (r.Deployment != 0 || !r.Superseded) {
		r.Deployment, err = c.gitlabDeployment(ctx, r, map[bool]string{true: "running", false: state}[state == "pending"])
	}
	if err != nil {
		return r.Deployment, err
	}
	return r.Deployment, c.post(ctx, c.project()+"/statuses/"+r.Commit, commitStatus{
		State: state, Name: r.Context, Description: r.Description, TargetURL: r.link(),
	}, nil)
}

func (c *client) project() string { return "/projects/" + url.PathEscape(c.repository.path) }

// gitlabDeployment creates a deployment, or changes its status, and sets the address of its
// environment. GitLab creates the environment with the deployment.
func (c *client) gitlabDeployment(ctx context.Context, r Report, state string) (int64, error) {
	var made struct {
		ID          int64 `json:"id"`
		Environment struct {
			ID  int64  `json:"id"`
			URL string `json:"external_url"`
		} `json:"environment"`
	}
	path, method := c.project()+"/deployments", http.MethodPost
	body := map[string]any{"status": state}
	if r.Deployment != 0 {
		path, method = path+"/"+strconv.FormatInt(r.Deployment, 10), http.MethodPut
	} else {
		body["environment"], body["sha"], body["ref"], body["tag"] = r.Environment, r.Commit, cmp.Or(r.Ref, "HEAD"), false
	}
	err := c.call(ctx, method, path, body, &made, maxAnswer)
	if id := cmp.Or(made.ID, r.Deployment); err != nil || id == 0 || r.URL == "" || made.Environment.ID == 0 || made.Environment.URL == r.URL {
		return id, err
	}
	environment := c.project() + "/environments/" + strconv.FormatInt(made.Environment.ID, 10)
	return made.ID, c.call(ctx, http.MethodPut, environment, map[string]any{"external_url": r.URL}, nil, maxAnswer)
}

// sendGitHub sends the state of the deployment, and then that of the commit: a deployment that is
// created twice would be worse than a status that is sent twice.
func (c *client) sendGitHub(ctx context.Context, r Report) (int64, error) {
	if r.Environment == "" {
		return 0, c.status(ctx, r)
	}
	if r.Deployment == 0 && !r.Superseded {
		id, err := c.deployment(ctx, r)
		if err != nil {
			return 0, err
		}
		r.Deployment = id
	}
	if r.Deployment != 0 {
		if err := c.deploymentStatus(ctx, r); err != nil {
			return r.Deployment, err
		}
	}
	return r.Deployment, c.status(ctx, r)
}

func (c *client) deployment(ctx context.Context, r Report) (int64, error) {
	var made struct {
		ID int64 `json:"id"`
	}
	err := c.post(ctx, "/repos/"+c.repository.escaped()+"/deployments", map[string]any{
		"ref": r.Commit, "environment": r.Environment, "description": "by " + clip(r.Context, 100),
		// What is deployed is the source's to say, not the checks' of the commit.
		"auto_merge": false, "required_contexts": []string{},
	}, &made)
	if err == nil && made.ID == 0 {
		err = git.NewError(git.Unreachable, "it is tried again", "%s created no deployment", c.host)
	}
	return made.ID, err
}

var deploymentStates = map[runnerapi.ReportState]string{
	runnerapi.ReportPending: "in_progress", runnerapi.ReportSuccess: "success", runnerapi.ReportFailure: "failure", runnerapi.ReportError: "error",
}

func (c *client) deploymentStatus(ctx context.Context, r Report) error {
	state := deploymentStates[r.State]
	if r.Superseded {
		state = "inactive"
	}
	about := map[string]any{"state": state, "description": r.Description, "auto_inactive": true}
	if r.Environment != "" {
		about["environment"] = r.Environment
	}
	if r.URL != "" {
		about["environment_url"] = r.URL
	}
	if r.Page != "" {
		about["log_url"] = r.Page
	}
	return c.post(ctx, "/repos/"+c.repository.escaped()+"/deployments/"+strconv.FormatInt(r.Deployment, 10)+"/statuses", about, nil)
}

// Retire tells a forge that what was deployed is gone: GitHub shows the deployment as inactive, and
// GitLab the environment as stopped.
func Retire(ctx context.Context, remote git.Remote, r Repository, c Credentials, deployment int64) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	at, err := open(ctx, remote, r, c, deployRights)
	if err != nil {
		return err
	}
	defer at.close()
	if r.kind == runnerapi.GitHub {
		return at.deploymentStatus(ctx, Report{Deployment: deployment, Superseded: true})
	}
	var of struct {
		Environment struct {
			ID int64 `json:"id"`
		} `json:"environment"`
	}
	path := at.project() + "/deployments/" + strconv.FormatInt(deployment, 10)
	if err := at.call(ctx, http.MethodGet, path, nil, &of, maxAnswer); err != nil {
		return err
	}
	return at.post(ctx, at.project()+"/environments/"+strconv.FormatInt(of.Environment.ID, 10)+"/stop", map[string]any{}, nil)
}
