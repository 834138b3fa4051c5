package install

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/machine"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// release publishes a version of the agent, by the image that its manifest names, as
// the newest. It answers the manifest.
func (c *computer) release(t *testing.T, version, image string) (content []byte) {
	t.Helper()
	manifest, err := os.ReadFile("../../deployments/agent.yaml")
	require.NoError(t, err)
	named := strings.Replace(string(manifest), "image: pipeops/agent:dev", "image: "+image, 1)
	require.NotEqual(t, string(manifest), named)
	script, err := os.ReadFile("../../scripts/install.sh")
	require.NoError(t, err)
	c.world.site.put(releases+version+"/", "SHA256SUMS", map[string][]byte{"agent.yaml": []byte(named), "install.sh": script})
	c.world.site.publish(newest, version+"\n")
	return []byte(named)
}

// TestInstall_Life goes the whole way on one machine: from nothing to registered, again,
// a worker, an upgrade, and away.
func TestInstall_Life(t *testing.T) {
	suite.Release(t, "the installer's whole life on Debian 11, 12 and 13")
	for _, debian := range machine.Debians {
		t.Run(debian, func(t *testing.T) {
			life(t, theWorld(t), debian)
		})
	}
}

func life(t *testing.T, w *world, debian string) {
	name := "life-" + debian
	t.Cleanup(w.site.keep())
	c := newComputer(t, w, name, debian)
	c.trust(t)
	t.Cleanup(func() { require.NoError(t, w.stopCluster(context.Background())) })
	before := c.tree(t, false)
	token := newToken(t, w)
	c = c.with("AGENT_TOKEN", token)
	last := token[len(token)-1:]
	wrong := strings.TrimSuffix(token, last) + map[bool]string{true: "b", false: "a"}[last == "a"]

	run := func(what string, step func(*testing.T)) {
		if !t.Run(what, step) {
			t.FailNow()
		}
	}
	run("a dry run changes nothing", func(t *testing.T) {
		r := c.guide(t, "dry-run")
		require.Zero(t, r.code, r.said)
		assert.Contains(t, r.said, "would run k3s' own installer")
		assert.Equal(t, before, c.tree(t, false))
		facts := c.bash(t, "bash /root/install.sh cluster-info -o env")
		assert.Contains(t, facts.said, "DISTRO=debian\n")
		assert.Contains(t, facts.said, "INIT=systemd\n")
	})
	run("killed before k3s", func(t *testing.T) {
		c.killedAt(t, k3sAssets+"k3s")
		r := c.bash(t, "test -L "+stateDir+"/lock -a ! -e /usr/local/bin/k3s")
		require.Zero(t, r.code, r.said)
	})
	run("Kubernetes that takes too long", func(t *testing.T) {
		c.bash(t, "touch /run/fake-k3s-not-ready")
		r := c.with("PIPEOPS_WAIT", "0").install(t)
		c.bash(t, "rm /run/fake-k3s-not-ready")
		assert.Equal(t, 7, r.code, r.said)
		assert.Contains(t, r.said, "Kubernetes was not ready after 0 s")
		assert.Contains(t, r.said, "journalctl -u k3s")
	})
	run("killed between k3s and the agent", func(t *testing.T) {
		c.killedAt(t, releases+"dev/agent.yaml")
		r := c.bash(t, "test -L "+stateDir+"/lock && systemctl is-active k3s && k3s kubectl --kubeconfig /etc/rancher/k3s/k3s.yaml get namespaces -o name")
		require.Zero(t, r.code, r.said)
		assert.Contains(t, r.said, "namespace/kube-system\n")
		assert.NotContains(t, r.said, "pipeops")
		assert.Regexp(t, `(?m)^k3s server$`, c.file(stateDir+"/installed"))
	})
	run("a wrong token", func(t *testing.T) {
		r := c.with("AGENT_TOKEN", wrong).install(t)
		assert.Equal(t, 9, r.code, r.said)
		assert.Contains(t, r.said, "does not accept the token")
		assert.NotContains(t, r.said+c.file(installLog), wrong)
		t.Logf("%s, of which the test cluster took %s\n%s", r.took, w.cluster, r.said)
	})
	run("from nothing to registered", func(t *testing.T) {
		watch := watchArguments(token)
		r := c.with("AGENT_TOKEN", "", "CLUSTER_NAME", "", "PIPEOPS_CONTROL_PLANE_URL", "").install(t,
			"AGENT_TOKEN=TOKEN", "AGENT_TOKEN="+token, "prod-1", name)
		require.Zero(t, r.code, r.said)
		assert.False(t, watch(), "the token was in a process's arguments")
		t.Logf("%s\n%s", r.took, r.said)
		agents, err := w.ControlPlane(t.Context(), "agent", "list")
		require.NoError(t, err)
		assert.Regexp(t, name+` +.*online`, agents)
		assert.NotContains(t, r.said+c.file(installLog), token)
		k := c.bash(t, "k3s kubectl --kubeconfig /etc/rancher/k3s/k3s.yaml get namespaces -o name")
		for _, name := range []string{"pipeops", "production", "beta", "monitoring"} {
			assert.Contains(t, k.said, "namespace/"+name+"\n")
		}
	})
	run("a second run changes nothing", func(t *testing.T) {
		files, objects := c.tree(t, true), c.objects(t)
		state := c.file(stateDir + "/installed")
		w.site.downloads()
		r := c.install(t)
		require.Zero(t, r.code, r.said)
		t.Logf("%s\n%s", r.took, r.said)
		assert.Equal(t, files, c.tree(t, true))
		assert.Equal(t, objects, c.objects(t))
		assert.Equal(t, state, c.file(stateDir+"/installed"))
		assert.NotContains(t, strings.Join(w.site.downloads(), "\n"), "k3s")
	})
	run("doctor", func(t *testing.T) {
		r := c.guide(t, "doctor")
		require.Zero(t, r.code, r.said)
		assert.Contains(t, r.said, "ok    control plane")
		assert.Contains(t, r.said, "ok    agent: registered, tunnel up")
		r = c.guide(t, "agent-log")
		require.Zero(t, r.code, r.said)
		assert.Contains(t, r.said, "Running")
	})
	run("a worker joins", func(t *testing.T) { workerJoins(t, w, c, debian) })
	run("an upgrade that fails goes back", func(t *testing.T) {
		c.release(t, "v2.0.0", "pipeops/agent:no-such-tag")
		r := c.guide(t, "upgrade-named", "VERSION", "v2.0.0")
		assert.Equal(t, 9, r.code, r.said)
		assert.Contains(t, r.said, "the version before runs again")
	})
	run("an upgrade", func(t *testing.T) {
		c.release(t, "v3.0.0", "pipeops/agent:v3.0.0")
		r := c.guide(t, "upgrade-named", "VERSION", "v3.0.0")
		require.Zero(t, r.code, r.said)
	})
	run("an upgrade to the newest version", c.upgradeToNewest)
	run("uninstall asks, and without a terminal refuses", func(t *testing.T) {
		r := c.bash(t, "bash /root/install.sh uninstall")
		assert.Equal(t, 8, r.code, r.said)
		assert.Contains(t, r.said, "--yes")
	})
	run("uninstall removes what was installed and nothing else", func(t *testing.T) {
		r := c.guide(t, "uninstall")
		require.Zero(t, r.code, r.said)
		t.Log(r.said)
		assert.Contains(t, r.said, "k3s server")
		assert.Equal(t, before, c.tree(t, false))
		assert.Empty(t, c.file(stateDir+"/installed"))
		r = c.bash(t, "bash /root/uninstall.sh --yes")
		assert.Zero(t, r.code, r.said)
		assert.Contains(t, r.said, "nothing to remove")
	})
}

// killedAt ends install.sh while it downloads a file, without a word.
func (c *computer) killedAt(t *testing.T, path string) {
	t.Helper()
	reached, gone := make(chan struct{}), make(chan struct{})
	var once sync.Once
	heal := c.world.site.fault(path, func(_ http.ResponseWriter, r *http.Request) {
		once.Do(func() { close(reached) })
		select { // it never comes
		case <-r.Context().Done():
		case <-gone:
		}
	})
	defer heal()
	defer close(gone)
	script := c.script("bash /root/install.sh")
	require.NoError(t, c.WriteFile("/root/run.sh", []byte(script), 0o700))
	r := c.bash(t, "systemd-run -q --collect --unit=installing bash /root/run.sh")
	require.Zero(t, r.code, r.said)
	select {
	case <-reached:
	case <-time.After(patience):
		t.Fatal(path + " was not asked for:\n" + c.file(installLog))
	}
	r = c.bash(t, "systemctl kill -s KILL installing && { systemctl stop installing 2>/dev/null || true; } && rm /root/run.sh")
	require.Zero(t, r.code, r.said)
}

// workerJoins joins a second machine to the server, by the small script.
func workerJoins(t *testing.T, w *world, server *computer, debian string) {
	token := strings.TrimSpace(server.guide(t, "node-token").said)
	require.Equal(t, joinToken, token)
	worker := newComputer(t, w, "worker", debian)
	worker.trust(t)
	join := func(token string) result {
		return worker.with("K3S_TOKEN", token).guide(t, "worker", "SERVER", server.Address)
	}
	r := join("wrong-token")
	assert.Equal(t, 7, r.code, r.said)
	r = join(token)
	require.Zero(t, r.code, r.said)
	t.Logf("%s\n%s", r.took, r.said)
	assert.Contains(t, r.said, "has joined https://"+server.Address+":6443")
	assert.NotContains(t, r.said+worker.file(installLog), token)
	k := server.bash(t, "k3s kubectl --kubeconfig /etc/rancher/k3s/k3s.yaml get nodes")
	assert.Regexp(t, `worker +Ready`, k.said)
	r = join(token)
	require.Zero(t, r.code, r.said)
	assert.Contains(t, r.said, "it is installed and runs")
	r = worker.guide(t, "uninstall")
	require.Zero(t, r.code, r.said)
}

// objects are the versions of what install.sh applies, without the pods that an
// update is still taking away.
func (c *computer) objects(t *testing.T) string {
	t.Helper()
	r := c.bash(t, `k3s kubectl --kubeconfig /etc/rancher/k3s/k3s.yaml get `+
		`namespaces,clusterroles,clusterrolebindings,crds,validatingadmissionpolicies,deployments,pods,configmaps,secrets,roles,rolebindings,networkpolicies `+
		`-n pipeops -o 'go-template={{range .items}}{{if .metadata.deletionTimestamp}}{{else if or (eq .metadata.name "pipeops-agent") (and (ne .kind "Secret") (ne .kind "ConfigMap"))}}{{.kind}} {{.metadata.name}} {{.metadata.uid}} {{.metadata.generation}} `+
		`{{if or (eq .kind "Namespace") (eq .kind "Secret") (eq .kind "ConfigMap") (eq .kind "ClusterRole")}}{{.metadata.resourceVersion}}{{end}}{{"\n"}}{{end}}{{end}}'`)
	require.Zero(t, r.code, r.said)
	return r.said
}

// watchArguments looks for a secret in the arguments of all processes, until the
// function that it answers is called, which says whether it was seen.
func watchArguments(secret string) (seen func() bool) {
	var (
		wg   sync.WaitGroup
		stop = make(chan struct{})
		hit  bool
	)
	wg.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			paths, _ := filepath.Glob("/proc/[0-9]*/cmdline")
			for _, path := range paths {
				text, _ := os.ReadFile(path)
				hit = hit || strings.Contains(string(text), secret)
			}
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	})
	return func() bool {
		close(stop)
		wg.Wait()
		return hit
	}
}
