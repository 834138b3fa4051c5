package forge

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/internal/source/git"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Request is an open pull or merge request.
type Request struct {
	Number int64
	Branch string
	Commit string
	Labels []string
	Fork   bool // its commit is in another repository
}

// Bounds of a list. GitHub describes both repositories of each request, in some 30 KiB.
const (
	perPage    = 50
	maxPages   = 10
	maxListing = 8 << 20
	maxBranch  = 255
)

// RequestsMemory is how many bytes of memory a list takes at most: a page, and what it is decoded
// into.
const RequestsMemory = 2 * maxListing

var listRights = rights{"list the pull requests of", map[runnerapi.Forge]string{
	runnerapi.GitHub: "read access to pull requests",
	runnerapi.GitLab: "the scope read_api, and the role Reporter in the project",
	runnerapi.Gitea:  "the scope read:repository, and access to the repository",
}, map[string]string{"pull_requests": "read"}}

// Requests returns the open requests of a repository. More than 500 are an error: a part of them
// would look as if the others were closed. Its errors are those of Send.
func Requests(ctx context.Context, remote git.Remote, r Repository, c Credentials) ([]Request, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	at, err := open(ctx, remote, r, c, listRights)
	if err != nil {
		return nil, err
	}
	defer at.close()
	next := at.pulls
	if r.kind == runnerapi.GitLab {
		next = at.mergeRequests
	}
	var all []Request
	for page := 1; page <= maxPages; page++ {
		some, err := next(ctx, page)
		if err != nil {
			return nil, err
		}
		for _, q := range some {
			if q.Number > 0 && commitID(q.Commit) {
				q.Branch = printable.Line(q.Branch[:min(len(q.Branch), maxBranch)], false)
				all = append(all, q)
			}
		}
		if len(some) < perPage {
			return all, nil
		}
	}
	return nil, git.NewError(git.TooLarge, "close some of them", "%s has more than %d open requests", r.path, perPage*maxPages)
}

// commitID reports whether a text is a commit's ID, as a source takes it.
func commitID(s string) bool {
	return len(s) == 40 && !slices.ContainsFunc([]byte(s), func(b byte) bool {
		return (b < '0' || b > '9') && (b < 'a' || b > 'f')
	})
}

// repositoryID is a repository as GitHub and Gitea identify it in a pull request. It is absent if
// it was deleted.
type repositoryID struct {
	ID int64 `json:"id"`
}

// pulls returns a page of pull requests, as GitHub and Gitea list them.
func (c *client) pulls(ctx context.Context, page int) ([]Request, error) {
	type end struct {
		Ref  string        `json:"ref"`
		SHA  string        `json:"sha"`
		Repo *repositoryID `json:"repo"`
	}
	var list []struct {
		Number int64 `json:"number"`
		Head   end   `json:"head"`
		Base   end   `json:"base"`
		Labels []struct {
			Name string `json:"name"`
		} `json:"labels"`
	}
	q := url.Values{"state": {"open"}, "page": {fmt.Sprint(page)}, "per_page": {fmt.Sprint(perPage)}}
	if c.repository.kind == runnerapi.Gitea {
		q = url.Values{"state": {"open"}, "page": {fmt.Sprint(page)}, "limit": {fmt.Sprint(perPage)}}
	}
	err := c.call(ctx, http.MethodGet, "/repos/"+c.repository.escaped()+"/pulls?"+q.Encode(), nil, &list, maxListing)
	out := make([]Request, 0, len(list))
	for _, p := range list {
		r := Request{Number: p.Number, Branch: p.Head.Ref, Commit: p.Head.SHA}
		r.Fork = p.Head.Repo == nil || p.Base.Repo == nil || p.Head.Repo.ID != p.Base.Repo.ID
		for _, l := range p.Labels {
			r.Labels = append(r.Labels, l.Name)
		}
		out = append(out, r)
	}
	return out, err
}

// mergeRequests returns a page of merge requests, as GitLab lists them.
func (c *client) mergeRequests(ctx context.Context, page int) ([]Request, error) {
	var list []struct {
		Number int64    `json:"iid"`
		Branch string   `json:"source_branch"`
		SHA    string   `json:"sha"`
		Source int64    `json:"source_project_id"`
		Target int64    `json:"target_project_id"`
		Labels []string `json:"labels"`
	}
	q := url.Values{"state": {"opened"}, "page": {fmt.Sprint(page)}, "per_page": {fmt.Sprint(perPage)}}
	err := c.call(ctx, http.MethodGet, c.project()+"/merge_requests?"+q.Encode(), nil, &list, maxListing)
	out := make([]Request, 0, len(list))
	for _, m := range list {
		out = append(out, Request{Number: m.Number, Branch: m.Branch, Commit: m.SHA, Labels: m.Labels, Fork: m.Source == 0 || m.Source != m.Target})
	}
	return out, err
}
