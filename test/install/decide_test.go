package install

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// decisions are what is decided for the machines recorded in testdata/facts: the
// rules of docs/cluster-owner/install.md. Settings go before recorded wishes.
var decisions = []struct {
	facts, settings string
	want            string // the cluster
	code            int    // of a dry run; 0: it can go on
	says            string
}{
	{facts: "ubuntu-24.04", want: "k3s", says: "Linux with systemd"},
	{facts: "ubuntu-22.04-arm64", want: "k3s", says: "ubuntu 22.04, arm64, a virtual machine (kvm)\n"},
	{facts: "ubuntu-20.04", want: "k3s"},
	{facts: "debian-11", want: "k3s", says: "kubelet-arg=fail-cgroupv1=false"},
	{facts: "debian-12", want: "k3s"},
	{facts: "debian-13", want: "k3s", says: "debian 13, amd64, not virtual\n"},
	{facts: "centos-7", want: "k3s", says: "kubelet-arg=fail-cgroupv1=false"},
	{facts: "centos-stream-9", want: "k3s"},
	{facts: "rhel-9", want: "k3s"},
	{facts: "rocky-9", want: "k3s"},
	{facts: "alma-9", want: "k3s"},
	{facts: "fedora-42", want: "k3s"},
	{facts: "amazon-2", want: "k3s", says: "kubelet-arg=fail-cgroupv1=false"},
	{facts: "amazon-2023", want: "k3s"},
	{facts: "alpine-3.20", want: "k3s", says: "Linux with openrc"},
	{facts: "alpine-without-cgroups", want: "k3s", code: 4, says: "rc-update add cgroups"},
	{facts: "opensuse-leap-15.6", want: "k3s"},
	{facts: "opensuse-tumbleweed", want: "k3s"},
	{facts: "raspberry-pi", want: "k3s", code: 4, says: "cgroup_enable=memory"},
	{facts: "arm-32-bit", want: "k3s", code: 4, says: "armv7l is not supported"},
	{facts: "lxd-unprivileged", want: "k3s", says: "KubeletInUserNamespace=true"},
	{facts: "lxc-privileged", settings: "NODE_TYPE=agent", want: "k3s", says: "a virtual machine (kvm), in a container (lxc)\n"},
	{facts: "lxc-privileged", want: "k3s", says: "conntrack-max-per-core=0"},
	{facts: "wsl2-systemd", want: "k3s", says: "flannel-backend=host-gw"},
	{facts: "wsl2-without-systemd-docker", want: "k3d"},
	{facts: "wsl2-without-systemd", want: "none", code: 4, says: "systemd=true into /etc/wsl.conf"},
	{facts: "wsl1", want: "none", code: 4, says: "wsl --set-version"},
	{facts: "docker-container", want: "none", code: 4, says: "--privileged"},
	{facts: "docker-container-with-socket", want: "k3d", says: "without the rights"},
	{facts: "small-memory", want: "k3s", says: "490 MB of memory are less than the 900 MB"},
	{facts: "small-memory", settings: "NODE_TYPE=agent", want: "k3s"}, // TestPreflight_Memory
	{facts: "ubuntu-24.04", settings: "PRESET=full-monitoring", want: "k3s", says: "the preset full-monitoring is for machines with 8 GiB of memory"},
	{facts: "one-gigabyte", want: "k3s", says: "2 GB are better"},
	{facts: "small-disk", want: "k3s", code: 4, says: "1800 MB are free"},
	{facts: "port-taken", want: "k3s", code: 4, says: "port 6443 is in use"},
	{facts: "ordinary-user", want: "k3s", code: 3, says: "sudo -E"},
	{facts: "ordinary-user", settings: "KUBE_CONTEXT=prod-eu", want: "existing"},
	{facts: "microk8s", want: "existing", code: 8, says: "which cluster is not said"},
	{facts: "microk8s", settings: "CLUSTER_TYPE=k3s", want: "k3s", code: 8, says: "has microk8s already"},
	{facts: "foreign-k3s", want: "existing", code: 8},
	{facts: "kubeadm", want: "existing", code: 8, says: "--context kubernetes-admin@kubernetes"},
	{facts: "kubeadm", settings: "KUBE_CONTEXT=kubernetes-admin@kubernetes", want: "existing"},
	{facts: "our-k3s", want: "k3s", says: "has set it up before"},
	{facts: "our-k3s", settings: "NODE_TYPE=agent", want: "k3s", code: 8, says: "uninstall first"},
	{facts: "our-worker", settings: "NODE_TYPE=agent", want: "k3s"},
	// A context that was not named is never used, however handy.
	{facts: "context-not-named", want: "k3s"},
	{facts: "context-not-named", settings: "CLUSTER_TYPE=existing", want: "existing", code: 8, says: "--context prod-eu"},
	{facts: "debian-12", settings: "CLUSTER_TYPE=kind", want: "kind", code: 4, says: "Docker does not run"},
	{facts: "macos-docker-k3d", want: "k3d"},
	{facts: "macos-docker-kind", want: "kind"},
	{facts: "macos-docker-minikube", want: "minikube"},
	{facts: "macos-docker-alone", want: "k3d"},
	{facts: "macos-no-docker", want: "none", code: 4, says: "start Docker"},
	{facts: "macos-docker-k3d", settings: "CLUSTER_TYPE=k3s", want: "k3s", code: 4, says: "k3s does not run on macos"},
}

func TestInstall_Decisions(t *testing.T) {
	recorded, err := filepath.Glob("testdata/facts/*.env")
	require.NoError(t, err)
	used := map[string]bool{}
	for _, d := range decisions {
		used[d.facts+".env"] = true
		t.Run(d.facts+" "+d.settings, func(t *testing.T) {
			t.Parallel()
			said, code := script(t, strings.Fields(d.settings), "install", "--dry-run", "--facts", "testdata/facts/"+d.facts+".env")
			assert.Equal(t, d.code, code, said)
			assert.Contains(t, said, "==> decision: "+d.want+", because: ")
			assert.Contains(t, said, d.says)
		})
	}
	for _, path := range recorded {
		assert.True(t, used[filepath.Base(path)], "%s is recorded, but nothing is expected of it", path)
	}
}

// TestServer_Decisions: what stands in the way of a server, and not of an agent.
func TestServer_Decisions(t *testing.T) {
	for name, c := range map[string]struct {
		facts, change, with string
		command             string // server if empty
		code                int
		says                string
	}{
		"a bare machine":                {facts: "debian-12", says: "k3s setting disable=traefik"},
		"OpenRC":                        {facts: "alpine-3.20", code: 4, says: "nothing could keep the control plane running"},
		"a web server":                  {facts: "debian-12", change: "PORTS_IN_USE=", with: "PORTS_IN_USE=80,443", code: 4, says: "port 80,443 is in use"},
		"a web server, beside an agent": {facts: "debian-12", change: "PORTS_IN_USE=", with: "PORTS_IN_USE=80,443", command: "install"},
		"its own ports":                 {facts: "debian-12", change: "PORTS_IN_USE=\n", with: "PORTS_IN_USE=443,8443\nCONTROL_PLANE=yes\n"},
		"a control plane of others":     {facts: "debian-12", change: "CONTROL_PLANE=no", with: "CONTROL_PLANE=other", code: 8, says: "has a control plane already"},
		"another Kubernetes":            {facts: "microk8s", code: 8, says: "has microk8s already"},
		"a private address":             {facts: "debian-12", change: "ADDRESS=192.0.2.10", with: "ADDRESS=10.0.0.5", says: "name it: --address"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := string(read(t, "testdata/facts/"+c.facts+".env"))
			if c.change != "" {
				require.Contains(t, text, c.change)
				text = strings.Replace(text, c.change, c.with, 1)
				if strings.Contains(c.with, "CONTROL_PLANE=yes") {
					text = strings.Replace(text, "\nCONTROL_PLANE=no", "", 1)
				}
			}
			file := filepath.Join(t.TempDir(), "facts")
			require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
			command := "server"
			if c.command != "" {
				command = c.command
			}
			said, code := script(t, nil, command, "--dry-run", "--facts", file)
			assert.Equal(t, c.code, code, said)
			assert.Contains(t, said, c.says)
		})
	}
	said, code := script(t, nil, "install", "--domain", "apps.example.com")
	assert.Equal(t, 2, code)
	assert.Contains(t, said, "--domain is for server, not for install")
}

// TestClusterInfo_NamesJoin: a server prints how a worker joins; other nodes do not.
func TestClusterInfo_NamesJoin(t *testing.T) {
	said, code := script(t, nil, "cluster-info", "--facts", "testdata/facts/our-k3s.env")
	assert.Zero(t, code, said)
	assert.Contains(t, said, "server:     https://SERVER:6443\n")
	assert.Contains(t, said, "token:      sudo cat /var/lib/rancher/k3s/server/node-token\n")
	assert.Contains(t, said, "/releases/latest/download/join-worker.sh | bash -s SERVER TOKEN\n")
	for _, other := range []string{"our-worker", "debian-12"} {
		said, _ := script(t, nil, "cluster-info", "--facts", "testdata/facts/"+other+".env")
		assert.NotContains(t, said, "node-token", other)
	}
}

// script runs install.sh here. It is only called in ways that change nothing.
func script(t *testing.T, settings []string, args ...string) (said string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", append([]string{"../../scripts/install.sh"}, args...)...)
	state := t.TempDir()
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + state, "PIPEOPS_INSTALL_STATE=" + state + "/state", "PIPEOPS_INSTALL_LOG=" + state + "/log",
	}, settings...)
	said, code = outcome(t, cmd)
	noteSaid(said)
	left, err := os.ReadDir(state)
	require.NoError(t, err)
	assert.Empty(t, left, "it has written something")
	return said, code
}

// outcome runs a command, and returns what it said and its exit code.
func outcome(t *testing.T, cmd *exec.Cmd) (said string, code int) {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		require.IsType(t, &exec.ExitError{}, err, string(out))
	}
	return string(out), cmd.ProcessState.ExitCode()
}
