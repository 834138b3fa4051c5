// Package forge reports the state of a commit to the server that hosts its repository: GitHub,
// GitLab, Gitea or Forgejo. It also lists the open pull requests there, and comments on them. It
// keeps nothing.
//
// It has no client library: these are seven requests, and a library would bring its own transport
// beside the one of package git, with its guard, proxy and limits.
package forge

import (
	"net/url"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/scope"
	"github.com/pipeops/pipeops-vm-agent/internal/source/git"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Repository is a repository at a forge.
type Repository struct {
	kind runnerapi.Forge
	api  *url.URL
	path string // OWNER/NAME; for GitLab with all groups
	// address is that of the repository as its Secret names it: always HTTPS.
	address runnerapi.GitURL
	// derived reports that the API's address follows from the repository's.
	derived bool
}

// suffixes are the paths at which a forge has its API.
var suffixes = map[runnerapi.Forge]string{runnerapi.GitHub: "/api/v3", runnerapi.GitLab: "/api/v4", runnerapi.Gitea: "/api/v1"}

// Locate returns the repository of a source, and where its forge's API is. Its errors name the
// field of the source.
func Locate(address string, report runnerapi.SourceReport) (Repository, error) {
	at, err := runnerapi.ParseGitURL(address)
	if err != nil {
		return Repository{}, invalid("url", "correct it", "%v", err)
	}
	r := Repository{kind: report.Forge, address: overHTTPS(at)}
	follows := "https://" + apiHost(report.Forge, r.address.Host)
	r.derived = report.API == "" || strings.TrimSuffix(report.API, "/") == follows
	if r.derived {
		report.API = follows
	}
	if r.api, err = url.Parse(strings.TrimSuffix(report.API, "/")); err != nil || r.api.Scheme != "https" || r.api.Hostname() == "" {
		return Repository{}, invalid("report.api", "correct it", "is not https://HOST/PATH")
	}
	r.path = strings.TrimSuffix(strings.Trim(r.address.Path, "/"), ".git")
	// A forge below a path of its host has its repositories and its API there.
	if base, ok := strings.CutSuffix(r.api.Path, suffixes[report.Forge]); ok && strings.EqualFold(r.api.Host, r.address.Host) && scope.Below(r.address.Path, base) {
		r.path = strings.TrimPrefix(r.path, strings.TrimPrefix(base, "/")+"/")
	}
	if names := strings.Count(r.path, "/") + 1; names < 2 || names > 2 && report.Forge != runnerapi.GitLab {
		return Repository{}, invalid("url", "correct it; for a forge below a path of its host, set report.api", "does not end with OWNER/NAME, as a repository of %s does", report.Forge)
	}
	return r, nil
}

// overHTTPS returns the address of the same repository over HTTPS.
func overHTTPS(u runnerapi.GitURL) runnerapi.GitURL {
	out := runnerapi.GitURL{Host: u.Host, Path: "/" + strings.Trim(u.Path, "/")}
	if u.SSH { // its port is not that of HTTPS
		out.Host = u.Hostname()
		if strings.Contains(out.Host, ":") {
			out.Host = "[" + out.Host + "]"
		}
	}
	return out
}

func apiHost(kind runnerapi.Forge, host string) string {
	if kind == runnerapi.GitHub && (host == "github.com" || strings.HasSuffix(host, ".ghe.com")) {
		return "api." + host
	}
	return host + suffixes[kind]
}

func invalid(field, fix, format string, args ...any) error {
	return problem.Errorf(problem.Invalid, fix, format, args...).WithField(field)
}

// CheckHost returns an error if the guard refuses the API's host. It contacts no server.
func CheckHost(remote git.Remote, report runnerapi.SourceReport) error {
	r, err := Locate(remote.URL, report)
	if err != nil {
		return err
	}
	remote.URL = r.api.String() + "/repos" // in the form of a repository's address, which has a path
	if refused := remote.CheckHost(); refused != nil {
		return refused.Problem().WithField("report.api")
	}
	return nil
}
