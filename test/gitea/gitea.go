// Package gitea runs Gitea, a Git server with pull requests and webhooks, for tests.
package gitea

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/freeport"
	"github.com/pipeops/pipeops-vm-agent/test/inputs"
	"github.com/pipeops/pipeops-vm-agent/test/postgres"
	"github.com/pipeops/pipeops-vm-agent/test/programs"
	"github.com/pipeops/pipeops-vm-agent/test/selfsigned"
)

// Owner is the one user, and an administrator.
const Owner = "shop"

// Server is a Gitea with one user. Nothing but its API is of use: its pages lack what their build
// would make.
type Server struct {
	URL   string // without a slash at its end
	CA    []byte // PEM of its certificate
	Token string // of the user, for Git and the API

	t      *testing.T
	dir    string
	config string
	client *http.Client
}

// Start starts a Gitea at an address of this machine. trusts is a file of CAs, in PEM: those of the
// servers that its webhooks call. It needs a PostgreSQL of its own.
func Start(t *testing.T, host, trusts string) *Server {
	t.Helper()
	program, err := programs.Gitea.Build(t.Context())
	require.NoError(t, err)
	s := &Server{t: t, dir: t.TempDir(), URL: "https://" + freeport.AddressAt(t, host)}
	s.certify(host)
	env := append(os.Environ(), "PGSSLROOTCERT="+s.configure(), "SSL_CERT_FILE="+trusts)
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), program, append(args, "--config", s.config)...)
		cmd.Env = env
		var out, text bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &text
		require.NoError(t, cmd.Run(), "gitea %s: %s%s", args, out.String(), text.String())
		return out.String()
	}
	run("migrate")
	run("admin", "user", "create", "--admin", "--username", Owner, "--password", rand.Text(), "--email", Owner+"@example.com", "--must-change-password=false")
	said := strings.Fields(run("admin", "user", "generate-access-token", "--username", Owner, "--scopes", "write:repository,write:user,write:issue", "--raw"))
	s.Token = said[len(said)-1] // after a warning, for root

	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	cmd := exec.CommandContext(ctx, program, "web", "--config", s.config)
	cmd.Env = env
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &text
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(text.String())
		}
	})
	await.Until(t, "Gitea answers", func() bool { return s.try(http.MethodGet, "/user", nil, nil) == nil })
	return s
}

// certify makes a certificate, and a client that trusts it.
func (s *Server) certify(host string) {
	s.t.Helper()
	cert, key, err := selfsigned.PEM(host)
	require.NoError(s.t, err)
	s.CA = []byte(cert)
	require.NoError(s.t, os.WriteFile(s.file("tls.crt"), s.CA, 0o600))
	require.NoError(s.t, os.WriteFile(s.file("tls.key"), []byte(key), 0o600))
	roots := x509.NewCertPool()
	require.True(s.t, roots.AppendCertsFromPEM(s.CA))
	transport := &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}}
	s.t.Cleanup(transport.CloseIdleConnections)
	s.client = &http.Client{Transport: transport}
}

func (s *Server) file(name string) string { return filepath.Join(s.dir, name) }

// configure writes the settings, with a new database. It returns the file of the database's CA.
func (s *Server) configure() string {
	s.t.Helper()
	server, err := postgres.Start(s.t.Context(), postgres.Options{})
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = server.Stop() })
	database, err := server.NewDatabase(s.t.Context())
	require.NoError(s.t, err)
	db, err := url.Parse(database.URL())
	require.NoError(s.t, err)
	password, _ := db.User.Password()
	me, err := user.Current()
	require.NoError(s.t, err)
	at, err := url.Parse(s.URL)
	require.NoError(s.t, err)
	s.config = s.file("app.ini")
	require.NoError(s.t, os.WriteFile(s.config, fmt.Appendf(nil, settings,
		me.Username, s.dir, at.Hostname(), at.Port(), s.URL, s.file("tls.crt"), s.file("tls.key"), s.sources(),
		db.Host, strings.TrimPrefix(db.Path, "/"), db.User.Username(), password, rand.Text()+rand.Text()), 0o600))
	return server.CAFile()
}

// sources returns the folder of Gitea's sources, where its templates and texts are.
func (s *Server) sources() string {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "code.gitea.io/gitea")
	cmd.Dir = filepath.Join(inputs.Root(), programs.Gitea.Module)
	out, err := cmd.Output()
	require.NoError(s.t, err)
	return strings.TrimSpace(string(out))
}

const settings = `RUN_USER = %s
I_AM_BEING_UNSAFE_RUNNING_AS_ROOT = true
WORK_PATH = %s
[server]
PROTOCOL = https
HTTP_ADDR = %s
HTTP_PORT = %s
ROOT_URL = %s/
CERT_FILE = %s
KEY_FILE = %s
STATIC_ROOT_PATH = %s
DISABLE_SSH = true
OFFLINE_MODE = true
[database]
DB_TYPE = postgres
HOST = %s
NAME = %s
USER = %s
PASSWD = %s
SSL_MODE = verify-full
[security]
INSTALL_LOCK = true
SECRET_KEY = %s
[service]
DISABLE_REGISTRATION = true
[webhook]
ALLOWED_HOST_LIST = loopback,private
[indexer]
ISSUE_INDEXER_TYPE = db
[queue]
TYPE = channel
[actions]
ENABLED = false
[log]
LEVEL = Warn
`
