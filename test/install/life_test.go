package install

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// release publishes a version of the agent, by the image that its manifest names.
func (c *computer) release(t *testing.T, version, image string) {
	t.Helper()
	manifest, err := os.ReadFile("../../deployments/agent.yaml")
	require.NoError(t, err)
	named := strings.Replace(string(manifest), "image: pipeops/agent:dev", "image: "+image, 1)
	require.NotEqual(t, string(manifest), named)
	script, err := os.ReadFile("../../scripts/install.sh")
	require.NoError(t, err)
	c.world.site.put(releases+version+"/", "SHA256SUMS", map[string][]byte{"agent.yaml": []byte(named), "install.sh": script})
}

// TestLife goes the whole way on one machine: from nothing to registered, again,
// a worker, an upgrade, and away.
func TestLife(t *testing.T) {
	w := theWorld(t)
	c := newComputer(t, w, "life", suite())
	before := c.tree(t, false)
	token := newToken(t, w)
	c = c.with("AGENT_TOKEN", token)

	run := func(name string, step func(*testing.T)) {
		if !t.Run(name, step) {
			t.FailNow()
		}
	}
	run("from nothing to registered", func(t *testing.T) {
		watch := watchArguments(token)
		r := c.install(t)
		require.Zero(t, r.code, r.said)
		assert.False(t, watch(), "the token was in a process's arguments")
		t.Logf("%s, of which the test cluster took %s\n%s", r.took, w.cluster, r.said)
		agents, err := w.ControlPlane(t.Context(), "agents")
		require.NoError(t, err)
		assert.Regexp(t, `life +.*online`, agents)
		assert.NotContains(t, r.said+c.file(installLog), token)
		k := c.bash(t, "k3s kubectl --kubeconfig /etc/rancher/k3s/k3s.yaml get namespaces -o name --cache-dir /run/kube")
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
		r := c.install(t, "doctor")
		assert.Contains(t, r.said, "ok    control plane")
		assert.Contains(t, r.said, "ok    agent: registered, tunnel up")
	})
	run("a worker joins", func(t *testing.T) { workerJoins(t, w, c) })
	run("an upgrade that fails goes back", func(t *testing.T) {
		c.release(t, "v2.0.0", "pipeops/agent:no-such-tag")
		r := c.install(t, "upgrade", "--version", "v2.0.0")
		assert.Equal(t, 9, r.code, r.said)
		assert.Contains(t, r.said, "the version before runs again")
	})
	run("an upgrade", func(t *testing.T) {
		c.release(t, "v3.0.0", "pipeops/agent:v3")
		r := c.install(t, "upgrade", "--version", "v3.0.0")
		require.Zero(t, r.code, r.said)
	})
	run("uninstall asks, and without a terminal refuses", func(t *testing.T) {
		r := c.install(t, "uninstall")
		assert.Equal(t, 8, r.code, r.said)
		assert.Contains(t, r.said, "--yes")
	})
	run("uninstall removes what was installed and nothing else", func(t *testing.T) {
		r := c.install(t, "uninstall", "--yes")
		require.Zero(t, r.code, r.said)
		t.Log(r.said)
		assert.Contains(t, r.said, "k3s server")
		assert.Equal(t, before, c.tree(t, false))
		assert.Empty(t, c.file(stateDir+"/installed"))
		r = c.install(t, "uninstall", "--yes")
		assert.Zero(t, r.code, r.said)
		assert.Contains(t, r.said, "nothing to remove")
	})
}

// workerJoins joins a second machine to the server, by the small script.
func workerJoins(t *testing.T, w *world, server *computer) {
	token := strings.TrimSpace(server.file("/var/lib/rancher/k3s/server/node-token"))
	require.Equal(t, joinToken, token)
	worker := newComputer(t, w, "worker", suite())
	join := func(token string) result {
		return worker.bash(t, "curl -fsSL --cacert /etc/site-ca.pem -O "+w.site.URL+releases+"dev/install.sh -O "+w.site.URL+releases+"dev/join-worker.sh"+
			" && bash join-worker.sh "+server.Address+" - <<<"+token)
	}
	r := join("wrong-token")
	assert.Equal(t, 7, r.code, r.said)
	r = join(token)
	require.Zero(t, r.code, r.said)
	t.Logf("%s\n%s", r.took, r.said)
	assert.Contains(t, r.said, "has joined https://"+server.Address+":6443")
	assert.NotContains(t, r.said+worker.file(installLog), token)
	k := server.bash(t, "k3s kubectl --kubeconfig /etc/rancher/k3s/k3s.yaml get nodes --cache-dir /run/kube")
	assert.Regexp(t, `worker +Ready`, k.said)
	r = join(token)
	require.Zero(t, r.code, r.said)
	assert.Contains(t, r.said, "it is installed and runs")
	r = worker.with("NODE_TYPE", "agent").bash(t, "bash install.sh uninstall --yes")
	require.Zero(t, r.code, r.said)
}

// objects are the versions of what install.sh applies.
func (c *computer) objects(t *testing.T) string {
	t.Helper()
	r := c.bash(t, `k3s kubectl --kubeconfig /etc/rancher/k3s/k3s.yaml --cache-dir /run/kube get `+
		`namespaces,clusterroles,clusterrolebindings,crds,validatingadmissionpolicies,deployments,pods,configmaps,secrets,roles,rolebindings,networkpolicies `+
		`-n pipeops -o 'go-template={{range .items}}{{.kind}} {{.metadata.name}} {{.metadata.uid}} {{.metadata.generation}} `+
		`{{if or (eq .kind "Namespace") (eq .kind "Secret") (eq .kind "ConfigMap") (eq .kind "ClusterRole")}}{{.metadata.resourceVersion}}{{end}}{{"\n"}}{{end}}'`)
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

// suite is the Debian of the machines.
func suite() string {
	if name := os.Getenv("PIPEOPS_TEST_DEBIAN"); name != "" {
		return name
	}
	return "bookworm"
}
