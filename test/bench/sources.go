package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/test/bench/run"
	"github.com/pipeops/pipeops-vm-agent/test/gitserver"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
)

// sources measures how soon a push is applied.
type sources struct {
	Sources int `flag:"sources" usual:"200" short:"20" help:"Git sources, each with a webhook"`
	Pushes  int `flag:"pushes" usual:"100" short:"10" help:"pushes to measure, one after the other"`
	Flood   int `flag:"flood" usual:"10000" short:"2000" help:"webhooks a minute for one source, beside pushes to others"`

	rig
	repo  *gitserver.Repository
	hooks []announce.SourceWebhook
	http  *http.Client
}

const (
	sourcesNamespace = "sources"
	sourcesPolicy    = `rules: [{name: all, commands: ["*", put-source, apply-manifests], kinds: [ConfigMap]}]`
)

func (b *sources) Measure(ctx context.Context, r *run.Run) {
	b.begin(ctx, r, harness.Options{})
	r.Step(fmt.Sprintf("%d sources of a Git server behind SSH", b.Sources), func() { b.fill(ctx) })
	quiet, flooded := []float64{}, []float64{}
	r.Step(fmt.Sprintf("%d pushes", b.Pushes), func() { quiet = b.pushes(ctx) })
	r.Step(fmt.Sprintf("%d pushes beside %d webhooks a minute for one source", b.Pushes, b.Flood), func() {
		ctx, stop := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() {
			defer close(done)
			b.flood(ctx)
		}()
		flooded = b.pushes(ctx)
		stop()
		<-done
	})
	b.Add("applied_p50", run.Percentile(quiet, 0.5))
	b.Add("applied_p99", run.Percentile(quiet, 0.99))
	b.Add("flooded_p50", run.Percentile(flooded, 0.5))
	b.Add("flooded_p99", run.Percentile(flooded, 0.99))
	b.Add("flooded_delay", run.Percentile(flooded, 0.99)-run.Percentile(quiet, 0.99))
}

// fill makes the sources, each with a folder of one repository and a webhook. They look by
// themselves once a day.
func (b *sources) fill(ctx context.Context) {
	run.Must(b.sys.Cluster.Kubectl(ctx, "apply", "--server-side", "-f", filepath.Join(harness.Root(), "deployments", "sources.yaml")))
	policy := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "pipeops-policy"}, Data: map[string]string{"policy.yaml": sourcesPolicy}}
	run.Must(b.kube.CoreV1().ConfigMaps(agentNamespace).Create(ctx, policy, metav1.CreateOptions{}))
	b.namespace(ctx, sourcesNamespace)

	t := tester{b.Run, ctx, b.sys.Dir}
	server := gitserver.Start(t, "", "")
	ssh := server.StartSSHAt(t, b.sys.HostIP())
	b.repo = server.Create(t, "shop/deploy.git")
	files := map[string]string{}
	for i := range b.Sources {
		files[fileOf(i)] = contentOf(i, "0")
	}
	b.repo.Commit(files)
	run.Must(b.client.Secrets().Set(ctx, runnerapi.Key{Namespace: sourcesNamespace, Name: "git-deploy"}, runnerapi.SecretSpec{Data: map[string]string{
		"url": ssh.URL("shop/"), "identity": string(ssh.Identity), "known_hosts": string(ssh.KnownHosts),
	}}, write))
	spec := runnerapi.SourceSpec{URL: ssh.URL("shop/deploy.git"), Type: runnerapi.SourceManifests, Credentials: "git-deploy", Interval: "24h"}
	run.Check(harness.Eventually(ctx, "the policy allows sources", func(ctx context.Context) error {
		spec.Path = filepath.Dir(fileOf(0))
		_, err := b.client.Sources().Set(ctx, sourceOf(0), spec, write)
		return err
	}))
	control := b.controlPlane()
	agent := run.Must(control.Agent(ctx, name))
	b.hooks = make([]announce.SourceWebhook, b.Sources)
	b.Each(ctx, b.Sources, "sources", func(ctx context.Context, i int) {
		spec := spec
		spec.Path = filepath.Dir(fileOf(i))
		run.Must(b.client.Sources().Set(ctx, sourceOf(i), spec, write))
		if s := run.Must(b.client.Sources().Wait(ctx, sourceOf(i), func(runnerapi.Source) {})); s.Status.Phase != runnerapi.SourceReady {
			run.Failf("source %s is %s: %v", sourceOf(i), s.Status.Phase, s.Status.Error)
		}
		b.hooks[i] = run.Must(control.SetSourceWebhook(ctx, agent.ID, sourceOf(i)))
	})
}

func sourceOf(i int) runnerapi.Key { return named(sourcesNamespace, "source", i) }
func fileOf(i int) string          { return fmt.Sprintf("folder-%d/map.yaml", i) }
func contentOf(i int, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: map-%d}\ndata: {value: %q}\n", i, value)
}

// controlPlane returns a client for a Runner's calls of the control plane, and how events come
// there.
func (b *sources) controlPlane() *announce.SnapshotClient {
	creds := run.Must(credentials.Load(b.sys.RunnerCredentials(name)))
	secured := func(certificates ...tls.Certificate) *http.Client {
		return &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: 16, TLSClientConfig: &tls.Config{
			RootCAs: run.Must(creds.Roots()), Certificates: certificates, MinVersion: tls.VersionTLS13,
		}}}
	}
	b.http = secured()
	return &announce.SnapshotClient{BaseURL: creds.ControlPlane, HTTPClient: secured(run.Must(creds.TLSCertificate()))}
}

// pushes returns how long after its push event a commit was applied, in milliseconds. The push
// itself is over before.
func (b *sources) pushes(ctx context.Context) (took []float64) {
	for n := range b.Pushes {
		i := 1 + n%(b.Sources-1) // the first is flooded
		value := strconv.FormatInt(time.Now().UnixNano(), 10)
		seen := b.applied(ctx, i, value)
		commit := b.repo.Commit(map[string]string{fileOf(i): contentOf(i, value)})
		start := time.Now()
		if status := b.post(ctx, b.hooks[i], commit); status != http.StatusAccepted {
			run.Failf("the webhook of source %s answers %d", sourceOf(i), status)
		}
		took = append(took, run.Milliseconds(seen(ctx).Sub(start)))
	}
	return took
}

// applied returns when the ConfigMap of a source has a value.
func (b *sources) applied(ctx context.Context, i int, value string) seen {
	w := run.Must(b.kube.CoreV1().ConfigMaps(sourcesNamespace).Watch(ctx, metav1.SingleObject(metav1.ObjectMeta{Name: fmt.Sprintf("map-%d", i)})))
	return await(w, func(o runtime.Object) bool {
		m, ok := o.(*corev1.ConfigMap)
		return ok && m.Data["value"] == value
	})
}

// post sends a push event as GitHub does.
func (b *sources) post(ctx context.Context, hook announce.SourceWebhook, commit string) (status int) {
	body := []byte(`{"ref":"refs/heads/main","after":"` + commit + `"}`)
	mac := hmac.New(sha256.New, []byte(hook.Secret))
	mac.Write(body)
	r := run.Must(http.NewRequestWithContext(ctx, http.MethodPost, hook.URL, bytes.NewReader(body)))
	r.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	resp, err := b.http.Do(r)
	if ctx.Err() != nil {
		return 0
	}
	run.Check(err)
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// flood sends events of the first source until ctx ends, each with another commit.
func (b *sources) flood(ctx context.Context) {
	steady := rate.NewLimiter(rate.Limit(float64(b.Flood)/60), 1)
	for n := 0; steady.Wait(ctx) == nil; n++ {
		b.post(ctx, b.hooks[0], fmt.Sprintf("%040x", n))
	}
}

// tester is a benchmark in place of a test.
type tester struct {
	*run.Run
	ctx context.Context
	dir string
}

func (t tester) Helper()                           {}
func (t tester) Context() context.Context          { return t.ctx }
func (t tester) TempDir() string                   { return run.Must(os.MkdirTemp(t.dir, "git")) }
func (t tester) Cleanup(f func())                  { t.OnClose(func() error { f(); return nil }) }
func (t tester) Errorf(format string, args ...any) { t.Say(format, args...) }
func (t tester) FailNow()                          { run.Failf("Git failed") }
