package e2e

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/cluster"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/logbook"
	"github.com/pipeops/pipeops-vm-agent/test/programs"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

const kubernetesPolicy = `rules:
- name: kubectl
  namespaces: [production]
  commands: [kubernetes-api]
  kubernetes: {user: pipeops-runner, groups: [pipeops-runners]}
- name: all
`

// asKubectl is a shell with a kubeconfig of pipeops-runner's, before a cluster whose owner has
// allowed what docs/deployer/kubernetes-api.md says.
func asKubectl(t *testing.T) *shell {
	t.Helper()
	s := newShell(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		defer cancel()
		_, err := sys.Cluster.Kubectl(ctx, "-n", namespace, "delete", "--ignore-not-found", "--now", "rolebinding/pipeops-runners", "rolebinding/top", "role/top", "pod/tool", "pod/flood", "deployment/page", "configmap/applied")
		assert.NoError(t, err)
		_, err = sys.Cluster.Kubectl(ctx, "delete", "--ignore-not-found", "-f", filepath.Join(harness.Root(), "deployments", "kubernetes-api-rights.yaml"))
		assert.NoError(t, err)
	})
	policyBecomes(t, "active", map[string]string{"policy.yaml": kubernetesPolicy})
	s.run(t, "pipeops-runner kubeconfig shop --kubeconfig shop.kubeconfig")
	for i, v := range s.env {
		if strings.HasPrefix(v, "KUBECONFIG=") {
			s.env[i] = "KUBECONFIG=" + filepath.Join(s.dir, "shop.kubeconfig")
		}
	}
	return s
}

// TestKubernetes_KubectlInTunnel has the real kubectl and the real helm do what they do, through
// the edge, the tunnel and the agent, with the rights of its ServiceAccount alone.
func TestKubernetes_KubectlInTunnel(t *testing.T) {
	s := newShell(t)
	s.run(t, "pipeops-runner kubeconfig shop --kubeconfig early.kubeconfig 2>warning")
	assert.Contains(t, s.run(t, "cat warning"), "warning: kubectl will be refused in namespace production: PipeOps agent: no rule of the customer's policy")
	s = asKubectl(t)
	s.fails(t, "kubectl get pods", `Error from server (Forbidden): PipeOps agent: the API server does not let the agent ask in the name of user "pipeops-runner"`)
	owner, err := harness.ShellWith("docs/deployer/kubernetes-api.md", "create rolebinding")
	require.NoError(t, err)
	for line := range strings.SplitSeq(strings.TrimSpace(owner), "\n") {
		_, err := sys.Cluster.Kubectl(t.Context(), strings.Fields(strings.Replace(strings.TrimPrefix(strings.TrimSpace(line), "kubectl "), "deployments/", harness.Root()+"/deployments/", 1))...)
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { return s.command(t.Context(), "kubectl get pods").Run() == nil }, 3*time.Minute, 100*time.Millisecond, "RBAC takes it up")

	t.Run("the document", func(t *testing.T) {
		block, err := harness.ShellWith("docs/deployer/kubernetes-api.md", "kubectl auth whoami")
		require.NoError(t, err)
		said := s.run(t, s.here(t, block))
		assert.Contains(t, said, "pipeops-runners")
		assert.NotContains(t, said, "serviceaccount")
	})
	t.Run("refusals", func(t *testing.T) {
		s.fails(t, "kubectl -n kube-system get pods", "Error from server (Forbidden): PipeOps agent: no rule of the customer's policy allows Runner e2e")
		s.fails(t, "kubectl -n pipeops get secrets", "PipeOps agent: ")
		s.fails(t, "kubectl get pods --all-namespaces", "not about one namespace alone")
		s.fails(t, "kubectl create rolebinding more --clusterrole admin --user pipeops-runner", `cannot create resource "rolebindings"`)
		s.fails(t, "kubectl get pods --as system:admin --as-group system:masters", `does not allow to impersonate user "system:admin"`)
	})
	tool, err := sys.Cluster.LoadProgram(t.Context(), cluster.Program{Package: "./test/apps/hello", Name: "tar", Ref: "apps.test/tar"})
	require.NoError(t, err)
	s.write(t, "tool.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: tool, labels: {app: tool}}\nspec:\n  containers:\n  - {name: tool, image: "+tool+
		", volumeMounts: [{name: data, mountPath: /data}]}\n  volumes: [{name: data, emptyDir: {}}]\n")
	s.run(t, "kubectl apply -f tool.yaml && kubectl wait --for condition=Ready pod/tool --timeout 5m")
	further := func(name string, run func(*testing.T)) {
		t.Run(name, func(t *testing.T) {
			suite.Release(t, "kubectl over SPDY, with streams, helm and by address")
			run(t)
		})
	}
	inside := func(websockets string) func(*testing.T) {
		return func(t *testing.T) {
			s.inside(t, "export KUBECTL_REMOTE_COMMAND_WEBSOCKETS="+websockets+" KUBECTL_PORT_FORWARD_WEBSOCKETS="+websockets+"\n")
		}
	}
	t.Run("websockets", inside("true"))
	further("SPDY", inside("false"))
	further("streams", s.streams)
	further("top", s.top)
	further("helm", s.helm)
	further("addresses", s.addresses)
	s.policyIs(t, kubernetesPolicy, "kubectl delete pod nobody", "NotFound")
	t.Run("revoked", func(t *testing.T) { s.revoked(t) })
}

// top has kubectl top, whose API the role edit does not hold.
func (s *shell) top(t *testing.T) {
	require.NoError(t, sys.Cluster.WaitMetrics(t.Context()))
	s.fails(t, "kubectl top pods", `cannot list resource "pods" in API group "metrics.k8s.io"`)
	for _, what := range []string{"role top --verb get,list --resource pods.metrics.k8s.io", "rolebinding top --role top --group pipeops-runners"} {
		_, err := sys.Cluster.Kubectl(t.Context(), append([]string{"-n", namespace, "create"}, strings.Fields(what)...)...)
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool {
		out, err := s.command(t.Context(), "kubectl top pods").Output()
		return err == nil && strings.Contains(string(out), "CPU(cores)")
	}, 3*time.Minute, 500*time.Millisecond)
}

func (s *shell) write(t *testing.T, name, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600))
}

// inside is what needs both directions: over WebSockets or SPDY.
func (s *shell) inside(t *testing.T, protocols string) {
	assert.Equal(t, "ping\n", s.run(t, protocols+"echo ping | kubectl exec -i tool -- /tar -cat"))
	s.run(t, protocols+"kubectl exec tool -- /tar -get http://127.0.0.1:1/ && exit 1 || test $? = 1")
	s.onTerminal(t, protocols+"exec kubectl exec -it tool -- /tar -cat")

	sent := sha256.New()
	file, err := os.Create(filepath.Join(s.dir, "big"))
	require.NoError(t, err)
	_, err = io.CopyN(io.MultiWriter(file, sent), rand.NewChaCha8([32]byte{5}), 8<<20+1)
	require.NoError(t, errors.Join(err, file.Close()))
	began := time.Now()
	s.run(t, protocols+"kubectl cp big tool:/data/big && rm big && kubectl cp tool:/data/big back")
	t.Logf("8 MiB in and out again in %s", time.Since(began).Round(time.Millisecond))
	back, err := os.ReadFile(filepath.Join(s.dir, "back"))
	require.NoError(t, err)
	assert.Equal(t, sent.Sum(nil), sum(back))

	listens := regexp.MustCompile(`Forwarding from 127\.0\.0\.1:(\d+)`)
	s.until(t, protocols+"exec kubectl port-forward pod/tool :8080", func(ctx context.Context, said string) error {
		at := listens.FindStringSubmatch(said)
		if at == nil {
			return errors.New("it does not listen yet")
		}
		return exec.CommandContext(ctx, "curl", "-fsS", "--noproxy", "*", "http://127.0.0.1:"+at[1]+"/").Run()
	})
}

func sum(p []byte) []byte {
	s := sha256.Sum256(p)
	return s[:]
}

// streams are calls that last until a client ends them.
func (s *shell) streams(t *testing.T) {
	s.write(t, "applied.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: applied}\ndata: {a: b}\n")
	asked := 0
	s.interrupted(t, "exec kubectl get configmaps --watch -o name", func(ctx context.Context, said string) error {
		if strings.Count(said, "configmap/applied") >= 2 {
			return nil
		}
		if said != "" { // it has begun
			asked++
			s.run(t, fmt.Sprintf("sed 's/a: b/a: b%d/' applied.yaml | kubectl apply --server-side -f -", asked))
		}
		return errors.New("not seen yet")
	})
	s.interrupted(t, "exec kubectl logs -f tool", func(ctx context.Context, said string) error {
		if strings.Contains(said, "/while-followed") {
			return nil
		}
		_ = s.command(ctx, "kubectl exec tool -- /tar -get http://127.0.0.1:8080/while-followed").Run() // there is no such page
		return errors.New("not seen yet")
	})
}

// interrupted is until for what ends with an exit code when it is interrupted, as kubectl does.
func (s *shell) interrupted(t *testing.T, text string, holds func(ctx context.Context, said string) error) {
	t.Helper()
	s.until(t, "trap 'kill $! || :; wait; exit 0' INT; ("+text+") & wait", holds)
}

// helm installs a chart of ours, and takes it away again.
func (s *shell) helm(t *testing.T) {
	helm, err := programs.Helm.Build(t.Context())
	require.NoError(t, err)
	require.NoError(t, os.Symlink(helm, filepath.Join(s.dir, "bin", "helm")))
	require.NoError(t, os.MkdirAll(filepath.Join(s.dir, "chart", "templates"), 0o700))
	s.write(t, "chart/Chart.yaml", "apiVersion: v2\nname: note\nversion: 1.0.0\n")
	s.write(t, "chart/templates/note.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}}\ndata: {text: {{ .Values.text }}}\n")
	s.run(t, "helm install note chart --set text=one && helm upgrade note chart --set text=two && helm rollback note 1 --wait")
	assert.Equal(t, "one", s.run(t, "kubectl get configmap note -o jsonpath={.data.text}"))
	assert.Contains(t, s.run(t, "helm list && helm history note && helm uninstall note"), "Rollback to 1")
	s.fails(t, "helm -n kube-system list", "PipeOps agent: ")
}

// revoked has a session open, and wants it to end with the Runner's certificate.
func (s *shell) revoked(t *testing.T) {
	_, err := sys.CreateRunner(t.Context(), "kubectl")
	require.NoError(t, err)
	s.run(t, "pipeops-runner --credentials "+sys.RunnerCredentials("kubectl")+" kubeconfig shop --kubeconfig other.kubeconfig")
	ctx, cancel := context.WithTimeout(t.Context(), docsPatience)
	defer cancel()
	cmd := s.command(ctx, "exec kubectl --kubeconfig other.kubeconfig exec -i tool -- /tar -cat")
	in, keyboard, err := os.Pipe()
	require.NoError(t, err)
	defer func() { assert.NoError(t, errors.Join(in.Close(), keyboard.Close())) }()
	out := &logbook.Book{}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, out
	require.NoError(t, cmd.Start())
	_, err = keyboard.WriteString("ping\n")
	require.NoError(t, err)
	require.NoError(t, harness.Eventually(ctx, "the session is open", func(context.Context) error {
		if !strings.Contains(out.String(), "ping") {
			return errors.New("no answer yet")
		}
		return nil
	}))
	began := time.Now()
	_, err = sys.ControlPlane(ctx, "runner", "revoke", "kubectl")
	require.NoError(t, err)
	require.Error(t, cmd.Wait(), "it was cut off")
	t.Logf("revoked, and kubectl ended, within %s: %s", time.Since(began).Round(time.Millisecond), out)
}
