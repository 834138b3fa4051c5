// Package gitserver is a Git server for tests. Git itself makes its repositories on disk, and Git's
// own programs serve them: git-http-backend behind TLS and a password, and git-upload-pack behind
// SSH. It imitates no protocol.
package gitserver

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/egress"
)

// T is what the server needs of a test, or of a benchmark.
type T interface {
	require.TestingT
	Helper()
	Context() context.Context
	TempDir() string
	Cleanup(func())
}

// Server serves the repositories in a folder.
type Server struct {
	Root     string // of the repositories, which are bare
	Username string // the user with read access over HTTPS; if empty, all clients have it
	Password string
	HTTPS    *httptest.Server
	// Requests counts the requests over HTTPS, Packs those for a pack.
	Requests, Packs atomic.Int64
}

// Guard lets tests fetch from these servers, which listen on loopback.
var Guard = egress.Guard{Allowed: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Hosts: egress.EveryHost}

// Start serves an empty folder over HTTPS. With a user it requires that user's password.
func Start(t T, username, password string) *Server {
	t.Helper()
	s := &Server{Root: t.TempDir(), Username: username, Password: password}
	backend, err := exec.CommandContext(t.Context(), "git", "--exec-path").Output()
	require.NoError(t, err)
	handler := &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(backend)), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + s.Root, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_GLOBAL=/dev/null", "HOME=" + s.Root},
	}
	s.HTTPS = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.Requests.Add(1)
		if user, password, _ := r.BasicAuth(); s.Username != "" && (user != s.Username || password != s.Password) {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		if r.Method == http.MethodPost {
			s.Packs.Add(1)
		}
		handler.ServeHTTP(w, r)
	}))
	s.HTTPS.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	s.HTTPS.Config.ErrorLog = nil
	s.HTTPS.StartTLS()
	t.Cleanup(s.HTTPS.Close)
	return s
}

// CA returns the certificate with which clients verify the server.
func (s *Server) CA() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.HTTPS.Certificate().Raw})
}

// URL returns a repository's address over HTTPS.
func (s *Server) URL(name string) string { return s.HTTPS.URL + "/" + name }

// Repository is a repository with a working tree.
type Repository struct {
	t    T
	bare string
	work string
}

// Create creates an empty repository with main as its default branch.
func (s *Server) Create(t T, name string) *Repository {
	t.Helper()
	r := &Repository{t, filepath.Join(s.Root, name), t.TempDir()}
	r.git("", "init", "--quiet", "--bare", "--initial-branch=main", r.bare)
	r.git("", "init", "--quiet", "--initial-branch=main", r.work)
	r.git(r.work, "remote", "add", "origin", r.bare)
	return r
}

// Config sets an option of the repository.
func (r *Repository) Config(name, value string) {
	r.t.Helper()
	r.git(r.bare, "config", name, value)
}

// Commit writes files, removes those that are empty, and pushes everything as one commit to main.
// It returns the commit.
func (r *Repository) Commit(files map[string]string) string {
	r.t.Helper()
	r.write(files)
	return r.Push()
}

func (r *Repository) write(files map[string]string) {
	r.t.Helper()
	for name, text := range files {
		path := filepath.Join(r.work, name)
		if text == "" {
			require.NoError(r.t, os.Remove(path))
			continue
		}
		require.NoError(r.t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(r.t, os.WriteFile(path, []byte(text), 0o600))
	}
}

// Push pushes the content of the working tree, and returns the commit.
func (r *Repository) Push() string {
	r.t.Helper()
	r.git(r.work, "add", "--all")
	r.git(r.work, "commit", "--quiet", "--allow-empty", "--message", "a commit")
	r.git(r.work, "push", "--quiet", "--force", "origin", "HEAD:main")
	return r.Git("rev-parse", "HEAD")
}

// Branch commits files on top of the newest commit, and pushes that to another branch than main. It
// returns the commit.
func (r *Repository) Branch(name string, files map[string]string) string {
	r.t.Helper()
	r.Git("checkout", "--quiet", "-B", name)
	defer r.Git("checkout", "--quiet", "-")
	r.write(files)
	r.Git("add", "--all")
	r.Git("commit", "--quiet", "--allow-empty", "--message", "a commit")
	r.Git("push", "--quiet", "--force", "origin", "HEAD:"+name)
	return r.Git("rev-parse", "HEAD")
}

// Work returns the path of the working tree.
func (r *Repository) Work() string { return r.work }

// Git runs git in the working tree and returns its output.
func (r *Repository) Git(args ...string) string {
	r.t.Helper()
	return r.git(r.work, args...)
}

func (r *Repository) git(dir string, args ...string) string {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), "git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_AUTHOR_NAME=test", "GIT_AUTHOR_EMAIL=test@example.com", "GIT_COMMITTER_NAME=test", "GIT_COMMITTER_EMAIL=test@example.com")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	require.NoError(r.t, cmd.Run(), "git %s: %s", strings.Join(args, " "), errs.String())
	return strings.TrimSpace(out.String())
}
