package install

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/charts"
	"github.com/pipeops/pipeops-vm-agent/test/machine"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// TestInstall_Offline makes a bundle, and installs from it where there is no download site,
// and then once more into that cluster as somebody's existing one.
func TestInstall_Offline(t *testing.T) {
	suite.Release(t, "the installer without internet, and into clusters of others")
	w := theWorld(t)
	c := newComputer(t, w, "offline", machine.Bookworm).with("PIPEOPS_MIRROR", "", "PIPEOPS_CA_FILE", "", "AGENT_TOKEN", newToken(t, w),
		"PIPEOPS_REGISTRY_MIRROR", "https://mirror.example.com:5000")
	t.Cleanup(func() { require.NoError(t, w.stopCluster(context.Background())) })
	c.bundle(t, "v1.0.0")
	w.site.downloads()

	r := c.guide(t, "bundle", "VERSION", "v1.0.0")
	require.Zero(t, r.code, r.said)
	t.Logf("%s\n%s", r.took, r.said)
	assert.Contains(t, r.said, "offline is registered")
	assert.Contains(t, r.said, "image archive k3s-airgap-images-amd64.tar.zst")
	assert.Empty(t, w.site.downloads())
	assert.Equal(t, "FAKE images of k3s", c.file("/var/lib/rancher/k3s/agent/images/k3s-airgap-images-amd64.tar.zst"))

	const registries = "/etc/rancher/k3s/registries.yaml"
	assert.Equal(t, "mirrors:\n  \"*\":\n    endpoint:\n      - \"https://mirror.example.com:5000\"\n", c.file(registries))
	r = c.with("PIPEOPS_REGISTRY_MIRROR", "https://other.example.com").guide(t, "bundle", "VERSION", "v1.0.0")
	require.Zero(t, r.code, r.said)
	assert.Contains(t, c.file(registries), `- "https://other.example.com"`, "a mirror that changed")
	assert.Contains(t, r.said, "starting k3s")

	t.Run("an existing cluster", func(t *testing.T) { existing(t, w, c) })
	t.Run("k3d", func(t *testing.T) { inDocker(t, w, c) })

	r = c.bash(t, "cd /root/pipeops-bundle-v1.0.0-amd64 && bash uninstall.sh --yes")
	require.Zero(t, r.code, r.said)
}

// bundle makes a bundle as `make bundle` does, and carries it to the machine.
func (c *computer) bundle(t *testing.T, version string) {
	t.Helper()
	images := []byte("FAKE images of k3s")
	c.world.site.put(k3sAssets, "sha256sum-amd64.txt", map[string][]byte{
		"k3s": c.world.site.file(k3sAssets + "k3s"), "k3s-airgap-images-amd64.tar.zst": images,
	})
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca.pem")
	require.NoError(t, os.WriteFile(ca, c.world.site.ca, 0o600))
	directory, charts := charts.Directory(t), t.TempDir()
	const vpa = "vertical-pod-autoscaler-0.11.0.tgz"
	require.NoError(t, os.WriteFile(filepath.Join(charts, vpa), read(t, filepath.Join(directory, vpa)), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(charts, "index.yaml"), nil, 0o600))
	programs := t.TempDir()
	require.NoError(t, c.world.Binaries.Link(programs))
	cmd := exec.CommandContext(t.Context(), "../../scripts/bundle.sh", "--version", version, "--charts", charts, "--programs", programs, "--output", dir)
	cmd.Env = append(os.Environ(), "PIPEOPS_MIRROR="+c.world.site.URL, "PIPEOPS_CA_FILE="+ca,
		fmt.Sprintf("PIPEOPS_K3S_IMAGES_SHA256=%x", sha256.Sum256(images)))
	for setting, sum := range c.world.sums {
		cmd.Env = append(cmd.Env, setting+"="+sum)
	}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	name := "pipeops-bundle-" + version + "-amd64.tar.gz"
	require.NoError(t, c.WriteFile("/root/"+name, read(t, filepath.Join(dir, name)), 0o600))
}

// existing installs into a cluster that is there, named by its context, and takes
// itself out again: what somebody else has made stays.
func existing(t *testing.T, w *world, c *computer) {
	kubectl := "k3s kubectl --kubeconfig /etc/rancher/k3s/k3s.yaml "
	setup := c.bash(t, "cd /root && cp pipeops-bundle-v1.0.0-amd64/install.sh . && "+kubectl+"-n pipeops delete deployment --all --cascade=foreground && "+
		kubectl+"delete namespace beta monitoring pipeops production && "+
		kubectl+"delete crd apps.pipeops.io && "+kubectl+"create namespace beta && "+kubectl+"-n beta create configmap theirs && "+
		"ln -sf /usr/local/bin/k3s /usr/bin/kubectl && "+kubectl+"config current-context")
	require.Zero(t, setup.code, setup.said)
	theirs := c.with("KUBECONFIG", "/etc/rancher/k3s/k3s.yaml", "PIPEOPS_INSTALL_STATE", "/var/lib/theirs", "PIPEOPS_INSTALL_LOG", "/var/log/theirs.log",
		"PIPEOPS_BUNDLE", "/root/pipeops-bundle-v1.0.0-amd64", "AGENT_TOKEN", newToken(t, w), "COMPONENTS", "vpa")

	r := theirs.guide(t, "existing", "NAME", "not-a-context")
	assert.Equal(t, 7, r.code, r.said)
	r = theirs.guide(t, "existing", "NAME", lastWord(setup.said))
	require.Zero(t, r.code, r.said)
	assert.Contains(t, r.said, "the namespace beta is there and not PipeOps'")
	assert.Contains(t, r.said, "offline is registered")
	assert.Contains(t, r.said, "    install vpa\n")
	installed := theirs.bash(t, kubectl+"get deployments -n vpa -o name; "+kubectl+"get clusterrolebindings,jobs -n pipeops -o name")
	assert.Contains(t, installed.said, "deployment.apps/vertical-pod-autoscaler")
	assert.NotContains(t, installed.said, "pipeops-components")

	other := theirs.with("KUBECONFIG", "/root/other.yaml")
	r = other.bash(t, "cp /etc/rancher/k3s/k3s.yaml /root/other.yaml && bash /root/install.sh install --context "+lastWord(setup.said))
	assert.Equal(t, 8, r.code, r.said)
	assert.Contains(t, r.said, "is of another cluster")

	app := theirs.bash(t, kubectl+`apply -f - <<'YAML'
apiVersion: pipeops.io/v1alpha1
kind: App
metadata: {name: web, namespace: production}
spec: {image: apps.test/none:1}
YAML`)
	require.Zero(t, app.code, app.said)
	r = theirs.bash(t, kubectl+"-n monitoring create serviceaccount theirs && "+kubectl+"-n monitoring create role theirs --verb=get --resource=pods && "+
		kubectl+"-n monitoring create ingress theirs --rule=shop.example.com/=shop:80")
	require.Zero(t, r.code, r.said)
	r = theirs.guide(t, "uninstall")
	assert.Equal(t, 8, r.code, r.said)
	assert.Contains(t, r.said, "Apps run in this cluster: production/web")
	r = theirs.bash(t, "bash /root/install.sh uninstall --yes --with-apps")
	require.Zero(t, r.code, r.said)
	t.Log(r.said)
	left := theirs.bash(t, kubectl+"get namespaces,clusterroles,crds,configmaps -n beta -o name")
	assert.Contains(t, left.said, "namespace/beta\n")
	assert.Contains(t, left.said, "configmap/theirs\n")
	assert.Contains(t, left.said, "namespace/monitoring\n")
	for _, kept := range []string{"ServiceAccount/theirs", "Role/theirs", "Ingress/theirs"} {
		assert.Regexp(t, "kept the namespace monitoring: it has .*"+kept, r.said)
	}
	for _, gone := range []string{"namespace/pipeops", "namespace/production", "namespace/vpa", "vertical-pod-autoscaler", "pipeops-agent", "apps.pipeops.io"} {
		assert.NotContains(t, left.said, gone)
	}
}

// inDocker installs with CLUSTER_TYPE=k3d, by fakes of Docker and k3d.
func inDocker(t *testing.T, w *world, c *computer) {
	c = c.with("CLUSTER_TYPE", "k3d", "PIPEOPS_MIRROR", w.site.URL, "PIPEOPS_CA_FILE", "/etc/site-ca.pem",
		"PIPEOPS_INSTALL_STATE", "/var/lib/docker-state", "PIPEOPS_INSTALL_LOG", "/var/log/docker-install.log", "AGENT_TOKEN", newToken(t, w))
	r := c.bash(t, "ln -s /bin/true /usr/bin/docker && systemd-run -q --unit=docker systemd-socket-activate -l /run/docker.sock cat && "+
		"until test -S /run/docker.sock; do sleep 0.05; done; bash /root/install.sh install --version dev")
	require.Zero(t, r.code, r.said)
	assert.Contains(t, r.said, "offline is registered")
	assert.Contains(t, c.bash(t, "cat /run/fake-k3d-calls").said, "cluster create pipeops --image rancher/k3s:v1.36.4-k3s1")
	assert.Empty(t, c.file("/root/.kube/config"), "the user's kubeconfig is not touched")
	r = c.guide(t, "uninstall")
	require.Zero(t, r.code, r.said)
	assert.Contains(t, c.bash(t, "cat /run/fake-k3d-calls").said, "cluster delete pipeops")
	assert.Empty(t, c.file("/usr/local/bin/k3d"))
}
