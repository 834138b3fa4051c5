package install

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
)

// a file that is only there.
const there = ""

// dmi is where the kernel tells what the firmware calls the machine.
const dmi = "sys/class/dmi/id/"

var server = map[string]string{
	"proc/meminfo": "MemTotal:        4009320 kB\n", "proc/cpuinfo": "processor\t: 0\nprocessor\t: 1\n",
	"proc/self/uid_map": "         0          0 4294967295\n", "proc/1/status": "CapBnd:\t000001ffffffffff\n",
	"sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory pids\n", "run/systemd/system/": there,
}

// machines are what is found on machines of which these files are known, beyond
// those of a server.
var machines = []struct {
	name  string
	files map[string]string
	want  map[string]string
}{
	{"ubuntu", map[string]string{"etc/os-release": "NAME=\"Ubuntu\"\nVERSION_ID=\"24.04\"\nID=ubuntu\nID_LIKE=debian\n", "usr/bin/apt-get": there},
		map[string]string{"DISTRO": "ubuntu", "DISTRO_VERSION": "24.04", "PACKAGE_MANAGER": "apt-get", "INIT": "systemd", "MEMORY_MB": "3915", "CPUS": "2", "CGROUPS": "v2", "CONTAINER": "none"}},
	{"debian", map[string]string{"etc/os-release": "ID=debian\nVERSION_ID=\"12\"\n", "usr/bin/apt-get": there},
		map[string]string{"DISTRO": "debian", "DISTRO_VERSION": "12"}},
	{"centos", map[string]string{"etc/os-release": "ID=\"centos\"\nVERSION_ID=\"7\"\n", "usr/bin/yum": there, "sys/fs/selinux/enforce": "1"},
		map[string]string{"DISTRO": "centos", "PACKAGE_MANAGER": "yum", "SELINUX": "enforcing"}},
	{"rhel", map[string]string{"etc/os-release": "ID=\"rhel\"\nVERSION_ID=\"9.4\"\n", "usr/bin/dnf": there, "usr/bin/yum": there},
		map[string]string{"DISTRO": "rhel", "PACKAGE_MANAGER": "dnf"}},
	{"rocky", map[string]string{"etc/os-release": "ID=\"rocky\"\nVERSION_ID=\"9.4\"\n", "usr/bin/dnf": there}, map[string]string{"DISTRO": "rocky"}},
	{"alma", map[string]string{"etc/os-release": "ID=\"almalinux\"\nVERSION_ID=\"9.4\"\n", "usr/bin/dnf": there}, map[string]string{"DISTRO": "almalinux"}},
	{"fedora", map[string]string{"etc/os-release": "ID=fedora\nVERSION_ID=42\n", "usr/bin/dnf": there, "sys/fs/selinux/enforce": "0"},
		map[string]string{"DISTRO": "fedora", "DISTRO_VERSION": "42", "SELINUX": "permissive"}},
	{"amazon", map[string]string{"etc/os-release": "ID=\"amzn\"\nVERSION_ID=\"2023\"\n", "usr/bin/dnf": there}, map[string]string{"DISTRO": "amzn", "DISTRO_VERSION": "2023"}},
	{"alpine", map[string]string{"etc/os-release": "ID=alpine\nVERSION_ID=3.20.3\n", "sbin/apk": there, "sbin/openrc-run": there, "run/openrc/": there, "run/systemd/": "gone"},
		map[string]string{"DISTRO": "alpine", "PACKAGE_MANAGER": "apk", "INIT": "openrc"}},
	{"opensuse", map[string]string{"etc/os-release": "ID=\"opensuse-leap\"\nVERSION_ID=\"15.6\"\n", "usr/bin/zypper": there},
		map[string]string{"DISTRO": "opensuse-leap", "PACKAGE_MANAGER": "zypper"}},
	{"unprivileged LXC", map[string]string{"run/systemd/container": "lxc", "proc/self/uid_map": "         0     100000      65536\n"},
		map[string]string{"CONTAINER": "lxc", "USER_NAMESPACE": "yes", "PRIVILEGED": "yes"}},
	{"LXC without systemd's word", map[string]string{"proc/1/environ": "TERM=linux\x00container=lxc\x00"}, map[string]string{"CONTAINER": "lxc"}},
	{"Docker", map[string]string{".dockerenv": there, "proc/1/status": "CapBnd:\t00000000a80425fb\n", "run/systemd/": "gone"},
		map[string]string{"CONTAINER": "docker", "PRIVILEGED": "no", "INIT": "none"}},
	{"WSL2", map[string]string{"proc/sys/kernel/osrelease": "5.15.153.1-microsoft-standard-WSL2\n", "run/systemd/container": "wsl"},
		map[string]string{"WSL": "2", "CONTAINER": "none"}},
	{"WSL1", map[string]string{"proc/sys/kernel/osrelease": "4.4.0-19041-Microsoft\n"}, map[string]string{"WSL": "1"}},
	{"hardware", map[string]string{dmi + "sys_vendor": "Dell Inc.\n", dmi + "product_name": "PowerEdge R640\n"}, map[string]string{"VIRTUALIZATION": "none"}},
	{"KVM", map[string]string{dmi + "sys_vendor": "QEMU\n", dmi + "product_name": "KVM Virtual Machine\n"}, map[string]string{"VIRTUALIZATION": "kvm"}},
	{"QEMU", map[string]string{dmi + "sys_vendor": "QEMU\n", dmi + "product_name": "Standard PC (Q35 + ICH9, 2009)\n"}, map[string]string{"VIRTUALIZATION": "qemu"}},
	{"VMware", map[string]string{dmi + "sys_vendor": "VMware, Inc.\n", dmi + "product_name": "VMware7,1\n"}, map[string]string{"VIRTUALIZATION": "vmware"}},
	{"VirtualBox", map[string]string{dmi + "sys_vendor": "innotek GmbH\n", dmi + "product_name": "VirtualBox\n"}, map[string]string{"VIRTUALIZATION": "oracle"}},
	{"Hyper-V", map[string]string{dmi + "sys_vendor": "Microsoft Corporation\n", dmi + "product_name": "Virtual Machine\n"}, map[string]string{"VIRTUALIZATION": "microsoft"}},
	{"a laptop of a hypervisor's maker", map[string]string{dmi + "sys_vendor": "Microsoft Corporation\n", dmi + "product_name": "Surface Pro\n"}, map[string]string{"VIRTUALIZATION": "none"}},
	{"EC2", map[string]string{dmi + "sys_vendor": "Amazon EC2\n", dmi + "product_name": "t3.small\n"}, map[string]string{"VIRTUALIZATION": "amazon"}},
	{"EC2's bare metal", map[string]string{dmi + "sys_vendor": "Amazon EC2\n", dmi + "product_name": "m5.metal\n"}, map[string]string{"VIRTUALIZATION": "none"}},
	{"GCE", map[string]string{dmi + "sys_vendor": "Google\n", dmi + "product_name": "Google Compute Engine\n"}, map[string]string{"VIRTUALIZATION": "google"}},
	{"a cloud's own name", map[string]string{dmi + "sys_vendor": "Hetzner\n", "proc/cpuinfo": "processor\t: 0\nflags\t\t: fpu x2apic hypervisor lahf_lm\n"}, map[string]string{"VIRTUALIZATION": "vm-other", "CPUS": "1"}},
	{"cgroups v1", map[string]string{"sys/": "gone", "proc/cgroups": "#subsys_name\thierarchy\tnum_cgroups\tenabled\nmemory\t5\t10\t1\n"}, map[string]string{"CGROUPS": "v1"}},
	{"no memory cgroup", map[string]string{"sys/": "gone", "proc/cgroups": "memory\t0\t1\t0\n"}, map[string]string{"CGROUPS": "v1-without-memory"}},
	{"port taken", map[string]string{"proc/net/tcp6": "  sl  local_address rem st\n   0: 00000000000000000000000000000000:192B 00000000000000000000000000000000:0000 0A 0\n"},
		map[string]string{"PORTS_IN_USE": "6443"}},
	{"port of a connection", map[string]string{"proc/net/tcp": "   0: 0100007F:192B 0100007F:1F90 01 0\n"}, map[string]string{"PORTS_IN_USE": ""}},
	{"k3s and kubeadm", map[string]string{"usr/local/bin/k3s": there, "etc/kubernetes/kubelet.conf": there}, map[string]string{"KUBERNETES": "k3s,kubeadm", "K3S_OURS": "no"}},
}

func TestFacts_Detection(t *testing.T) {
	for _, m := range machines {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			for path, content := range server {
				add(t, root, path, content)
			}
			for path, content := range m.files {
				add(t, root, path, content)
			}
			said, code := script(t, []string{"FACTS_ROOT=" + root, "FACTS_UNAME=Linux", "FACTS_MACHINE=x86_64"}, "cluster-info", "-o", "json")
			require.Zero(t, code, said)
			var facts map[string]string
			require.NoError(t, json.Unmarshal([]byte(said), &facts), said)
			for key, want := range m.want {
				assert.Equal(t, want, facts[key], key)
			}
		})
	}
}

// add makes a file, or a folder, or takes one away.
func add(t *testing.T, root, path, content string) {
	t.Helper()
	full := filepath.Join(root, path)
	if content == "gone" {
		require.NoError(t, os.RemoveAll(full))
		return
	}
	require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
	if strings.HasSuffix(path, "/") {
		require.NoError(t, os.MkdirAll(full, 0o755))
		return
	}
	require.NoError(t, os.WriteFile(full, []byte(content), 0o600))
}

// TestFacts_NoProxyAccounts: people pass facts on, so they hold no password.
func TestFacts_NoProxyAccounts(t *testing.T) {
	said, _ := script(t, []string{"HTTPS_PROXY=http://user:hunter2@proxy.example.com:3128"}, "cluster-info", "-o", "env")
	assert.Contains(t, said, "PROXY=proxy.example.com:3128\n")
	assert.NotContains(t, said, "hunter2")
}

// TestFacts_Whole: the file has the keys that cluster-info prints.
func TestFacts_Whole(t *testing.T) {
	said, _ := script(t, nil, "cluster-info", "-o", "env")
	recorded, err := filepath.Glob("testdata/facts/*.env")
	require.NoError(t, err)
	for _, path := range recorded {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, keys(said), keys(string(text)), path)
	}
}

// TestFacts_RunNothing: each fact of a file with an expression that would run a command.
func TestFacts_RunNothing(t *testing.T) {
	recorded := string(read(t, "testdata/facts/debian-13.env"))
	marker := filepath.Join(t.TempDir(), "ran")
	evil := "a[$(touch " + marker + ")]"
	for _, key := range append(keys(recorded), "SECONDS", "x", "a["+evil+"]") {
		lines := ""
		for line := range strings.Lines(recorded) {
			if !strings.HasPrefix(line, key+"=") {
				lines += line
			}
		}
		file := filepath.Join(t.TempDir(), "facts")
		require.NoError(t, os.WriteFile(file, []byte(lines+key+"="+evil+"\n"), 0o600))
		for _, args := range [][]string{{"cluster-info", "-o", "env", "--facts", file}, {"install", "--dry-run", "--facts", file}} {
			said, code := script(t, nil, args...)
			assert.Equal(t, 2, code, "%s: %s", key, said)
			assert.Contains(t, said, "is not a fact", key)
		}
	}
	root := t.TempDir()
	add(t, root, "proc/1/status", "CapBnd:\t0,"+evil+"\n")
	_, _ = script(t, []string{"FACTS_ROOT=" + root, "FACTS_UNAME=Linux"}, "cluster-info", "-o", "env")
	assert.NoFileExists(t, marker)
}

func keys(env string) (keys []string) {
	for line := range strings.Lines(env) {
		key, _, _ := strings.Cut(line, "=")
		keys = append(keys, key)
	}
	return keys
}

// TestInstall_ProxyAccountsInSecret: anyone who may read the namespace could read a config map.
func TestInstall_ProxyAccountsInSecret(t *testing.T) {
	objects := func(proxy string) (settings, secret string) {
		cmd := exec.CommandContext(t.Context(), "bash", "-euc",
			". scripts/install/k3s.sh; . scripts/install/kube.sh; object_settings; object_proxy")
		cmd.Dir = harness.Root()
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "NAMESPACE=pipeops", "PIPEOPS_CONTROL_PLANE_URL=https://cp", "CLUSTER_NAME=one",
			"LOG_LEVEL=", "PIPEOPS_CA_FILE=", "PIPEOPS_CONTROL_PLANE=", "HTTPS_PROXY=" + proxy}
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		documents := strings.Split(string(out), "---\n")
		require.Len(t, documents, 3, string(out))
		return documents[1], documents[2]
	}
	proxy := `http://user:hunter"2@proxy.example.com:3128`
	settings, secret := objects(proxy)
	assert.NotContains(t, settings, "hunter")
	assert.NotContains(t, settings, "HTTPS_PROXY")
	assert.Contains(t, settings, "NO_PROXY: \"127.0.0.0/8,")
	assert.Contains(t, secret, "kind: Secret\n")
	assert.Contains(t, secret, "  HTTPS_PROXY: "+base64.StdEncoding.EncodeToString([]byte(proxy))+"\n")

	settings, secret = objects("")
	assert.NotContains(t, settings, "PROXY")
	assert.Contains(t, secret, "data: {}\n", "what an earlier run put there goes")
}

// TestToken_NamesControlPlane: the environment has precedence over the token.
func TestToken_NamesControlPlane(t *testing.T) {
	url := func(settings ...string) string {
		cmd := exec.CommandContext(t.Context(), "bash", "-euc",
			`. scripts/install/settings.sh; RELEASE_CONTROL_PLANE_URL=https://released; settings_load; echo "$PIPEOPS_CONTROL_PLANE_URL"`)
		cmd.Dir = harness.Root()
		cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, settings...)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		return strings.TrimSuffix(string(out), "\n")
	}
	token, err := controlapi.NewToken(strings.Repeat("ab", 32))
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte(token.At("https://[2001:db8::1]:8443").Reveal()+" \r\n"), 0o600))
	assert.Equal(t, "https://cp.example.com:8443", url("AGENT_TOKEN="+token.At("https://cp.example.com:8443").Reveal()))
	assert.Equal(t, "https://[2001:db8::1]:8443", url("AGENT_TOKEN_FILE="+file))
	assert.Equal(t, "https://released", url("AGENT_TOKEN="+token.Reveal()))
	assert.Equal(t, "https://other", url("AGENT_TOKEN="+token.At("https://cp.example.com").Reveal(), "PIPEOPS_CONTROL_PLANE_URL=https://other"))
}
