package step_test

import (
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/build/step"
	"github.com/pipeops/pipeops-vm-agent/internal/signature"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/gitserver"
)

const user, password = "ci", "hunter2-of-the-test"

// secret writes the files of a Secret's volume, as the kubelet has them.
func secret(t *testing.T, data map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "..data"), 0o700))
	for key, value := range data {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "..data", key), []byte(value), 0o600))
		require.NoError(t, os.Symlink(filepath.Join("..data", key), filepath.Join(dir, key)))
	}
	return dir
}

func TestFetch_FolderOfCommit(t *testing.T) {
	server := gitserver.Start(t, user, password)
	repository := server.Create(t, "shop.git")
	require.NoError(t, os.MkdirAll(filepath.Join(repository.Work(), "app"), 0o700))
	require.NoError(t, os.Symlink("/etc", filepath.Join(repository.Work(), "app", "away")))
	require.NoError(t, os.Symlink("Dockerfile", filepath.Join(repository.Work(), "app", "link")))
	require.NoError(t, os.WriteFile(filepath.Join(repository.Work(), "app", "run"), []byte("#!/bin/sh\n"), 0o755))
	commit := repository.Commit(map[string]string{"app/Dockerfile": "FROM scratch\n", "app/deep/er/file": "x", "outside": "y"})

	var out strings.Builder
	fetch := step.Fetch{
		Guard: gitserver.Guard, URL: server.URL("shop.git"), Ref: runnerapi.GitRef{Branch: "main"}, Path: "app", Secret: "git", Out: &out, Dir: t.TempDir(), CommitDir: t.TempDir(),
		SecretDir: secret(t, map[string]string{"url": server.URL("shop.git"), "username": user, "password": password, "ca.crt": string(server.CA())}),
	}
	result, err := fetch.Run(t.Context())
	require.NoError(t, err)
	assert.Equal(t, step.Result{Commit: commit}, result)
	assert.NotContains(t, out.String(), password)
	noted, err := os.ReadFile(filepath.Join(fetch.CommitDir, "commit"))
	require.NoError(t, err)
	assert.Equal(t, commit, string(noted))
	assert.NoFileExists(t, filepath.Join(fetch.Dir, "commit"), "the builder writes there")
	context := filepath.Join(fetch.Dir, "context")
	for name, mode := range map[string]os.FileMode{"Dockerfile": 0o644, "run": 0o755, "deep/er/file": 0o644} {
		info, err := os.Lstat(filepath.Join(context, name))
		require.NoError(t, err)
		assert.Equal(t, mode, info.Mode(), name)
	}
	for name, target := range map[string]string{"link": "Dockerfile", "away": "/etc"} { // kept as they are, and not followed
		have, err := os.Readlink(filepath.Join(context, name))
		require.NoError(t, err)
		assert.Equal(t, target, have)
	}
	entries, err := os.ReadDir(context)
	require.NoError(t, err)
	assert.Len(t, entries, 5)

	for cause, change := range map[string]func(*step.Fetch){
		"ref_not_found":           func(f *step.Fetch) { f.Ref.Branch = "elsewhere" },
		"path_not_found":          func(f *step.Fetch) { f.Path = "nowhere" },
		"certificate_not_trusted": func(f *step.Fetch) { f.Secret = "" },
		"commit_unsigned":         func(f *step.Fetch) { f.Signers = []signature.Signers{{}} },
		"credentials_invalid":     func(f *step.Fetch) { f.SecretDir = secret(t, map[string]string{"username": user}) },
	} {
		f := fetch
		f.Dir = t.TempDir()
		change(&f)
		result, err := f.Run(t.Context())
		require.Error(t, err, cause)
		said := report(t, result, err)
		assert.Equal(t, cause, said.Cause)
		assert.NotEmpty(t, said.Fix)
		assert.NotContains(t, said.Message, password)
	}
}

// report is what the agent reads of a step.
func report(t *testing.T, result step.Result, err error) step.Result {
	t.Helper()
	file := filepath.Join(t.TempDir(), "termination-log")
	require.ErrorIs(t, step.Report(file, result, err), err)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	said, ok := step.Parse(string(text))
	require.True(t, ok)
	return said
}

func TestPush_Image(t *testing.T) {
	inner := registry.New()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if u, p, _ := r.BasicAuth(); u != user || p != password {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "https://")
	docker := t.TempDir()
	auth := base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
	require.NoError(t, os.WriteFile(filepath.Join(docker, "config.json"), []byte(`{"auths":{"`+host+`":{"auth":"`+auth+`"}}}`), 0o600))

	dir := t.TempDir()
	img := left(t, dir)
	digest, err := img.Digest()
	require.NoError(t, err)
	repository, err := runnerapi.BuildTemplate{Image: host + "/shop/web"}.Repository()
	require.NoError(t, err)
	commits := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(commits, "commit"), []byte("0a1b2c3d4e5f60718293a4b5c6d7e8f901234567"), 0o600))
	// What the builder says is the commit has no say.
	require.NoError(t, os.WriteFile(filepath.Join(dir, "commit"), []byte("ffffffffffffffffffffffffffffffffffffffff"), 0o600))
	push := step.Push{Repository: repository, Dir: dir, CommitDir: commits, Transport: server.Client().Transport, Out: &strings.Builder{}}

	t.Setenv("DOCKER_CONFIG", t.TempDir())
	result, err := push.Run(t.Context())
	assert.Equal(t, "registry_denied", report(t, result, err).Cause)
	t.Setenv("DOCKER_CONFIG", docker)
	untrusting := push
	untrusting.Transport = nil
	result, err = untrusting.Run(t.Context())
	assert.Equal(t, "registry_not_trusted", report(t, result, err).Cause)

	link := filepath.Join(dir, "image", "blobs", "link")
	require.NoError(t, os.Symlink(filepath.Join(docker, "config.json"), link))
	result, err = push.Run(t.Context())
	assert.Equal(t, "image_invalid", report(t, result, err).Cause, "what the builder left leads nowhere else")
	require.NoError(t, os.Remove(link))

	result, err = push.Run(t.Context())
	require.NoError(t, err)
	assert.Equal(t, step.Result{Tag: host + "/shop/web:0a1b2c3d4e5f", Image: host + "/shop/web@" + digest.String()}, result)
	tag, err := name.NewTag(result.Tag)
	require.NoError(t, err)
	have, err := remote.Head(tag, remote.WithTransport(push.Transport), remote.WithAuth(&authn.Basic{Username: user, Password: password}))
	require.NoError(t, err)
	assert.Equal(t, digest, have.Digest)
}

// left writes what the steps before leave.
func left(t *testing.T, dir string) v1.Image {
	t.Helper()
	img, err := random.Image(1<<10, 2)
	require.NoError(t, err)
	path, err := layout.Write(filepath.Join(dir, "image"), empty.Index)
	require.NoError(t, err)
	require.NoError(t, path.AppendImage(img))
	return img
}

func FuzzParse(f *testing.F) {
	f.Add(`{"commit":"a"}`)
	f.Fuzz(func(t *testing.T, message string) {
		if r, ok := step.Parse(message); !ok && r != (step.Result{}) {
			t.Fatal("half a result")
		}
	})
}
