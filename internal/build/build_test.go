package build_test

import (
	"archive/tar"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/deployments"
	"github.com/pipeops/pipeops-vm-agent/internal/build"
	"github.com/pipeops/pipeops-vm-agent/internal/egress"
	"github.com/pipeops/pipeops-vm-agent/internal/signature"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/buildkit"
	"github.com/pipeops/pipeops-vm-agent/test/cluster"
	"github.com/pipeops/pipeops-vm-agent/test/gitserver"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/selfsigned"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m, kubetest.OwnClusters)) }

const (
	builds       = "pipeops-builds"
	builderImage = "builds.test/buildkit:v1"
	user         = "ci"
	password     = "hunter2-of-the-test"
	patience     = 8 * time.Minute
)

var byTest = runnerapi.WriteOptions{Caller: runnerapi.Caller{Runner: "tester", RequestID: "req-1"}}

// workshop is a cluster that builds, a Git server and a registry that its pods reach: all with
// TLS of their own CA, and a password.
type workshop struct {
	t        *testing.T
	env      *kubetest.Env
	builds   *build.Client
	opts     build.Options
	server   *gitserver.Server
	git      *gitserver.Repository
	gitURL   string
	ca       *authority
	registry string // HOST:PORT
	trusted  *http.Transport
}

func open(t *testing.T) *workshop {
	t.Helper()
	w := &workshop{t: t, env: kubetest.Full(t)}
	img, err := buildkit.Image(t.Context())
	require.NoError(t, err)
	require.NoError(t, w.env.Cluster.LoadImage(t.Context(), builderImage, img))
	tools, err := w.env.Cluster.LoadProgram(t.Context(), cluster.Program{Package: "./cmd/agent", Name: "pipeops-agent", Ref: "pipeops/agent"})
	require.NoError(t, err)
	w.apply(deployments.BuildRights())
	listed := egress.Hosts{Patterns: []string{w.env.Cluster.HostIP()}}
	w.opts = build.Options{
		Namespace: kubetest.AgentNamespace, Image: builderImage, ToolsImage: tools,
		Guard: egress.Guard{Hosts: func() egress.Hosts { return listed }}, Policy: anySigner{},
	}
	w.builds = w.agent()

	ca := newCA(t, w.env.Cluster.HostIP())
	w.trusted = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.pool, MinVersion: tls.VersionTLS12}}
	t.Cleanup(w.trusted.CloseIdleConnections)
	w.ca, w.server = ca, gitserver.Start(t, user, password)
	w.gitURL = "https://" + ca.serve(t, w.server.HTTPS.Config.Handler) + "/shop.git"
	w.git = w.server.Create(t, "shop.git")
	w.registry = ca.serve(t, withPassword(registry.New()))

	w.secret("git", corev1.SecretTypeOpaque, map[string]string{"url": w.gitURL, "username": user, "password": password, "ca.crt": ca.pem})
	w.secret("registry", corev1.SecretTypeDockerConfigJson, w.login())
	w.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: builds, Name: "ca"}, Data: map[string]string{"ca.crt": ca.pem}})
	return w
}

// login is a secret by which the registry lets in.
func (w *workshop) login() map[string]string {
	w.t.Helper()
	auth := base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
	config, err := json.Marshal(map[string]any{"auths": map[string]any{w.registry: map[string]string{"auth": auth}}})
	require.NoError(w.t, err)
	return map[string]string{corev1.DockerConfigJsonKey: string(config)}
}

// anySigner is a policy that demands no signatures.
type anySigner struct{}

func (anySigner) Signers(runnerapi.Intent) (*signature.Signers, error) { return nil, nil }

// agent is a Client with exactly the rights of the manifests.
func (w *workshop) agent() *build.Client {
	w.t.Helper()
	c, err := build.New(w.env.Agent, w.opts)
	require.NoError(w.t, err)
	return c
}

func (w *workshop) apply(manifest []byte) {
	w.t.Helper()
	w.env.Apply(w.t, string(manifest))
	require.Eventually(w.t, func() bool { // a namespace's first ServiceAccount comes a moment later
		_, err := w.env.Cluster.Kubectl(context.Background(), "-n", builds, "get", "serviceaccount", "default")
		return err == nil
	}, patience, 50*time.Millisecond)
}

func (w *workshop) create(o client.Object) {
	w.t.Helper()
	require.NoError(w.t, w.env.Client.Create(w.t.Context(), o))
}

func (w *workshop) secret(name string, kind corev1.SecretType, data map[string]string) {
	w.t.Helper()
	w.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: builds, Name: name}, Type: kind, StringData: data})
}

func (w *workshop) spec() runnerapi.BuildSpec {
	return runnerapi.BuildSpec{
		Git:           runnerapi.BuildGit{URL: w.gitURL, Ref: runnerapi.GitRef{Branch: "main"}, Path: "app", Credentials: "git"},
		BuildTemplate: runnerapi.BuildTemplate{Image: w.registry + "/shop/web", PushCredentials: "registry", CA: &runnerapi.BuildCA{ConfigMap: "ca"}},
	}
}

func (w *workshop) put(name string, spec runnerapi.BuildSpec) runnerapi.Build {
	w.t.Helper()
	require.Empty(w.t, spec.Validate(name))
	b, err := w.builds.Run(w.t.Context(), runnerapi.Key{Namespace: builds, Name: name}, spec, byTest)
	require.NoError(w.t, err)
	return b
}

// await follows the log to its end, and answers the outcome and the log.
func (w *workshop) await(name string) (runnerapi.Build, string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	key := runnerapi.Key{Namespace: builds, Name: name}
	var log strings.Builder
	err := w.builds.Logs(ctx, key, runnerapi.LogOptions{Follow: true, Tail: -1}, func(l runnerapi.LogLine) error {
		log.WriteString(l.Line + "\n")
		return nil
	})
	require.NoError(w.t, err)
	var b runnerapi.Build
	require.Eventually(w.t, func() bool {
		b, err = w.builds.Get(ctx, key)
		return err == nil && b.Status.Phase.Ended()
	}, patience, 100*time.Millisecond, "the Job sees that its pod has ended; log:\n%s", &log)
	w.t.Logf("%+v\n%s", b.Status, log.String())
	assert.NotContains(w.t, log.String(), password)
	return b, log.String()
}

// shell makes a static program a shell of the images that are built: there is no base image.
func shell(t *testing.T) string {
	t.Helper()
	dir, err := buildkit.Parts(t.Context())
	require.NoError(t, err)
	text, err := os.ReadFile(dir + "/root/bin/busybox")
	require.NoError(t, err)
	return string(text)
}

const dockerfile = `FROM scratch AS base
COPY bin/busybox /bin/sh
ARG GREETING=nothing
RUN ["/bin/sh", "-c", "echo step-of-the-build $GREETING; echo $GREETING > /greeting"]

FROM base AS broken
RUN ["/bin/sh", "-c", "echo about to fail; exit 7"]

FROM base AS slow
RUN ["/bin/sh", "-c", "echo it-is-slow; sleep 600"]

FROM scratch
COPY --from=base /greeting /greeting
COPY --chown=33:33 link data/hello.txt /data/
`

// TestBuild_FromGitToRegistry builds, as a Runner has it built, with a real Git server, a
// real registry and a real BuildKit in a pod.
func TestBuild_FromGitToRegistry(t *testing.T) {
	w := open(t)
	busybox := shell(t)
	require.NoError(t, os.MkdirAll(w.git.Work()+"/app/bin", 0o700))
	require.NoError(t, os.WriteFile(w.git.Work()+"/app/bin/busybox", []byte(busybox), 0o755)) // executable: it has to arrive so
	require.NoError(t, os.Symlink("data/hello.txt", w.git.Work()+"/app/link"))
	commit := w.git.Commit(map[string]string{"app/Dockerfile": dockerfile, "app/data/hello.txt": "hello", "outside": "not of the context"})

	t.Run("a held delete", func(t *testing.T) { w.heldDelete(t) })
	t.Run("image", func(t *testing.T) { w.builtAndPushed(t, commit) })
	t.Run("a step that fails", func(t *testing.T) { w.failingStep(t) })
	for _, further := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"cancelled", w.cancelled},
		{"what cannot be fetched or pushed", w.causes},
		{"a repository that becomes an App", w.followed},
	} {
		t.Run(further.name, func(t *testing.T) {
			suite.Release(t, "further builds in a real BuildKit")
			further.run(t)
		})
	}
}

// heldDelete has a delete go on in a replica that was held in the middle of it, after another one
// carried it out and a new run came under the build's name.
func (w *workshop) heldDelete(t *testing.T) {
	key := runnerapi.Key{Namespace: builds, Name: "held"}
	jobs := func() (names []string) {
		list := &batchv1.JobList{}
		require.NoError(t, w.env.Client.List(t.Context(), list, client.InNamespace(builds)))
		for _, j := range list.Items {
			if j.DeletionTimestamp.IsZero() {
				names = append(names, j.Name)
			}
		}
		return names
	}
	put := func(run string) {
		spec := w.spec()
		spec.Run = run
		_, err := w.builds.Run(t.Context(), key, spec, byTest)
		require.NoError(t, err)
	}
	remove := func(answered func() bool) error {
		held := byTest
		held.Answered = func(context.Context) (bool, error) { return answered(), nil }
		return w.builds.Delete(t.Context(), key, held)
	}
	put("first")
	require.NoError(t, remove(func() bool { return true }))
	require.Len(t, jobs(), 1)
	require.NoError(t, remove(func() bool {
		require.NoError(t, w.builds.Delete(t.Context(), key, byTest))
		put("second")
		return false
	}))
	require.Len(t, jobs(), 1)
	require.NoError(t, remove(func() bool { return false }))
	require.Empty(t, jobs())
}

func (w *workshop) builtAndPushed(t *testing.T, commit string) {
	spec := w.spec()
	spec.Args = map[string]string{"GREETING": "good day, and more"}
	begun := w.put("web", spec)
	assert.False(t, begun.Status.Phase.Ended())
	again := w.put("web", spec)
	assert.Equal(t, begun.CreatedAt, again.CreatedAt, "the same run is not started twice")
	other := spec
	other.Run = "another"
	_, err := w.builds.Run(t.Context(), runnerapi.Key{Namespace: builds, Name: "web"}, other, byTest)
	require.ErrorContains(t, err, "in progress")

	w.builds = w.agent() // the agent was restarted, and keeps telling
	b, log := w.await("web")
	require.Equal(t, runnerapi.BuildSucceeded, b.Status.Phase, "%+v", b.Status.Failure)
	assert.Contains(t, log, "step-of-the-build good day, and more")
	assert.Less(t, strings.Index(log, "commit "+commit), strings.Index(log, "step-of-the-build"))
	assert.Less(t, strings.Index(log, "step-of-the-build"), strings.Index(log, "pushed "))
	assert.Equal(t, commit, b.Status.Commit)
	assert.Equal(t, w.registry+"/shop/web:"+commit[:12], b.Status.Tag)
	assert.Equal(t, spec, b.Spec)
	assert.Equal(t, "tester", b.Runner)
	assert.Positive(t, b.Status.Seconds)

	tag, err := name.NewTag(b.Status.Tag)
	require.NoError(t, err)
	img, err := remote.Image(tag, remote.WithTransport(w.trusted), remote.WithAuth(&authn.Basic{Username: user, Password: password}))
	require.NoError(t, err)
	digest, err := img.Digest()
	require.NoError(t, err)
	assert.Equal(t, w.registry+"/shop/web@"+digest.String(), b.Status.Image)
	assert.Equal(t, map[string]string{"greeting": "good day, and more\n", "data/link": "hello", "data/hello.txt": "hello"}, contents(t, mutate.Extract(img)))

	list, err := w.builds.List(t.Context(), builds)
	require.NoError(t, err)
	require.Len(t, list, 1)
	assert.Equal(t, b.Status.Image, list[0].Status.Image)
}

func (w *workshop) failingStep(t *testing.T) {
	spec := w.spec()
	spec.Target, spec.History = "broken", 2
	w.put("web", spec)
	b, _ := w.await("web")
	f := b.Status.Failure
	require.NotNil(t, f)
	assert.Equal(t, "build", f.Stage)
	assert.Equal(t, "step_failed", f.Cause)
	assert.Contains(t, f.Step, "RUN [\"/bin/sh\", \"-c\", \"echo about to fail; exit 7\"]")
	assert.Equal(t, 7, f.Line)
	assert.Contains(t, f.Message, "exit code: 7")
	assert.Contains(t, strings.Join(f.LastLines, "\n"), "about to fail")
	require.Len(t, b.Before, 1, "the run before")
	assert.Equal(t, runnerapi.BuildSucceeded, b.Before[0].Phase)

	spec.Dockerfile = "Nowhere"
	w.put("web", spec)
	b, _ = w.await("web")
	require.NotNil(t, b.Status.Failure)
	assert.Equal(t, "dockerfile_missing", b.Status.Failure.Cause)
	require.Len(t, b.Before, 1, "history is 2: the oldest run is gone")
	assert.Equal(t, "step_failed", b.Before[0].Cause)
}

// cancelled deletes a build while a step runs, whose line was seen before.
func (w *workshop) cancelled(t *testing.T) {
	spec := w.spec()
	spec.Target = "slow"
	w.put("slow", spec)
	key := runnerapi.Key{Namespace: builds, Name: "slow"}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var once sync.Once
	err := w.builds.Logs(ctx, key, runnerapi.LogOptions{Follow: true, Tail: -1}, func(l runnerapi.LogLine) error {
		if strings.HasSuffix(l.Line, "it-is-slow") {
			once.Do(func() { assert.NoError(t, w.builds.Delete(ctx, key, byTest)) })
		}
		return nil
	})
	require.NoError(t, err, "the log ends with the build")
	require.NoError(t, ctx.Err())
	_, err = w.builds.Get(t.Context(), key)
	require.ErrorContains(t, err, "there is no build")
	require.Eventually(t, func() bool {
		out, err := w.env.Cluster.Kubectl(ctx, "-n", builds, "get", "pods", "-l", "pipeops.io/build=slow", "-o", "name")
		return err == nil && len(out) == 0
	}, patience, 100*time.Millisecond, "its pod is gone")
}

func (w *workshop) causes(t *testing.T) {
	key := func(name string) runnerapi.Key { return runnerapi.Key{Namespace: builds, Name: name} }
	for name, change := range map[string]func(*runnerapi.BuildSpec){
		"ref-not-found":     func(s *runnerapi.BuildSpec) { s.Git.Ref.Branch = "elsewhere" },
		"registry-denied":   func(s *runnerapi.BuildSpec) { s.PushCredentials = "" },
		"deadline-exceeded": func(s *runnerapi.BuildSpec) { s.Target, s.DeadlineSeconds = "slow", new(int64(10)) },
	} {
		spec := w.spec()
		change(&spec)
		w.put(name, spec)
		defer func() { assert.NoError(t, w.builds.Delete(context.Background(), key(name), byTest)) }()
	}
	for _, cause := range []string{"ref_not_found", "registry_denied", "deadline_exceeded"} {
		b, _ := w.await(strings.ReplaceAll(cause, "_", "-"))
		require.NotNil(t, b.Status.Failure, cause)
		assert.Equal(t, cause, b.Status.Failure.Cause)
		assert.NotEmpty(t, b.Status.Failure.Fix)
	}

	spec := w.spec()
	spec.PushCredentials = "git"
	_, err := w.builds.Run(t.Context(), key("refused"), spec, byTest)
	require.ErrorContains(t, err, "has type Opaque")
	spec.PushCredentials = "nowhere"
	_, err = w.builds.Run(t.Context(), key("refused"), spec, byTest)
	require.ErrorContains(t, err, "there is no secret nowhere")
	_, err = w.builds.Run(t.Context(), runnerapi.Key{Namespace: "production", Name: "refused"}, w.spec(), byTest)
	require.ErrorContains(t, err, "has not allowed them in namespace production")
	without := w.opts
	without.Image = ""
	c, err := build.New(w.env.Agent, without)
	require.NoError(t, err)
	_, err = c.Run(t.Context(), key("refused"), w.spec(), byTest)
	require.ErrorContains(t, err, "names no image")
}

func contents(t *testing.T, layer io.ReadCloser) map[string]string {
	t.Helper()
	defer func() { require.NoError(t, layer.Close()) }()
	files := map[string]string{}
	for r := tar.NewReader(layer); ; {
		h, err := r.Next()
		if err == io.EOF {
			return files
		}
		require.NoError(t, err)
		if h.Typeflag == tar.TypeReg {
			text, err := io.ReadAll(r)
			require.NoError(t, err)
			files[strings.TrimPrefix(h.Name, "/")] = string(text)
		}
	}
}

func withPassword(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if u, p, _ := r.BasicAuth(); u != user || p != password {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// authority is a CA of the test's, whose servers listen where pods reach them.
type authority struct {
	host netip.Addr
	cert tls.Certificate
	pem  string
	pool *x509.CertPool
}

func newCA(t *testing.T, host string) *authority {
	t.Helper()
	cert, key, err := selfsigned.PEM(host)
	require.NoError(t, err)
	a := &authority{host: netip.MustParseAddr(host), pem: cert, pool: x509.NewCertPool()}
	a.cert, err = tls.X509KeyPair([]byte(cert), []byte(key))
	require.NoError(t, err)
	require.True(t, a.pool.AppendCertsFromPEM([]byte(cert)))
	return a
}

func (a *authority) serve(t *testing.T, handler http.Handler) string {
	t.Helper()
	listener, err := tls.Listen("tcp", fmt.Sprintf("%s:0", a.host), &tls.Config{Certificates: []tls.Certificate{a.cert}, MinVersion: tls.VersionTLS12})
	require.NoError(t, err)
	server := &http.Server{Handler: handler}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		require.NoError(t, server.Close())
		require.ErrorIs(t, await.Receive(t, done, "the server's end"), http.ErrServerClosed)
	})
	return listener.Addr().String()
}
