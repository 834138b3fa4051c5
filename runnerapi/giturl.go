package runnerapi

import (
	"cmp"
	"errors"
	"net"
	"net/url"
	"regexp"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/scope"
)

// GitURL is the address of a Git repository.
type GitURL struct {
	SSH  bool   // else HTTPS
	User string // SSH's; git where the address names none
	Host string // with the port where the address has one
	Path string // decoded, without . and ..; begins with / except in the form USER@HOST:PATH
}

const maxGitURL = 2048

var (
	scpLike = regexp.MustCompile(`^(?:([A-Za-z0-9._-]+)@)?([A-Za-z0-9.-]+):([^/:].*|/.*)$`)
	sshUser = regexp.MustCompile(`^[A-Za-z0-9._][A-Za-z0-9._-]*$`)
)

// ParseGitURL reads https://HOST/PATH, ssh://USER@HOST/PATH or USER@HOST:PATH. Other ways
// are refused: they are not encrypted, or are files of the agent's machine.
func ParseGitURL(text string) (GitURL, error) {
	if len(text) > maxGitURL || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '\\' }) {
		return GitURL{}, errors.New("is not an address of a repository: it has spaces or control characters, or is too long")
	}
	if !strings.Contains(text, "://") {
		return parseSCP(text)
	}
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" {
		return GitURL{}, errors.New("is not an address of a repository; give https://HOST/PATH or ssh://git@HOST/PATH")
	}
	if u.RawQuery != "" || u.Fragment != "" || u.ForceQuery {
		return GitURL{}, errors.New("may have neither query nor fragment: what is to be followed goes into ref")
	}
	if scope.HidesSlash(u) {
		return GitURL{}, errors.New("hides a / as %2F: servers disagree about what that is")
	}
	g := GitURL{Host: strings.ToLower(u.Host), Path: u.Path}
	switch u.Scheme {
	case "https":
		if u.User != nil {
			return GitURL{}, errors.New("may not have a user or password: put them into a Secret and name it in credentials")
		}
	case "ssh":
		g.SSH, g.User = true, "git"
		if _, password := u.User.Password(); password {
			return GitURL{}, errors.New("may not have a password: SSH goes by a key, in a Secret that credentials names")
		}
		if u.User.Username() != "" {
			g.User = u.User.Username()
		}
	default:
		return GitURL{}, errors.New("only https:// and ssh:// are taken: other ways are not encrypted, or reach into the agent's machine")
	}
	return g.checked()
}

func parseSCP(text string) (GitURL, error) {
	m := scpLike.FindStringSubmatch(text)
	if m == nil {
		return GitURL{}, errors.New("is not an address of a repository; give https://HOST/PATH, ssh://git@HOST/PATH or git@HOST:PATH")
	}
	g := GitURL{SSH: true, User: m[1], Host: strings.ToLower(m[2]), Path: m[3]}
	g.User = cmp.Or(g.User, "git")
	return g.checked()
}

// checked returns the address, or why it is none that may be followed.
func (g GitURL) checked() (GitURL, error) {
	if err := g.check(); err != nil {
		return GitURL{}, err
	}
	return g, nil
}

func (g GitURL) check() error {
	switch {
	case strings.Trim(g.Path, "/") == "":
		return errors.New("has no path: it names a server, not a repository")
	case strings.HasPrefix(g.Path, "-") || strings.HasPrefix(g.Host, "-") || g.SSH && !sshUser.MatchString(g.User):
		return errors.New("could be taken for an option of Git; no repository is called so")
	}
	return g.checkPath()
}

// checkPath refuses every path that a server could resolve to another one: Within compares
// text, and a Secret's credentials must not leave what its url names.
func (g GitURL) checkPath() error {
	if err := scope.CheckPath(g.Path); err != nil {
		return err
	}
	segments := strings.Split(strings.TrimSuffix(strings.TrimPrefix(g.Path, "/"), "/"), "/")
	for i, segment := range segments {
		if g.SSH && (segment == "~" || i > 0 && segment[0] == '~') {
			return errors.New("has a path with a home folder in it (~): give the path that it leads to")
		}
	}
	return nil
}

// Address returns where to dial.
func (g GitURL) Address() string {
	if _, _, err := net.SplitHostPort(g.Host); err == nil {
		return g.Host
	}
	port := "443"
	if g.SSH {
		port = "22"
	}
	return net.JoinHostPort(strings.Trim(g.Host, "[]"), port)
}

// Hostname returns the host without the port.
func (g GitURL) Hostname() string {
	host, _, _ := net.SplitHostPort(g.Address()) // Address always has a port
	return host
}

// Within reports whether the repository is prefix itself or below it: same way, user, server and
// beginning of the path.
func (g GitURL) Within(prefix GitURL) bool {
	if g.SSH != prefix.SSH || g.User != prefix.User || g.Address() != prefix.Address() {
		return false
	}
	return scope.Below(g.Path, prefix.Path)
}
