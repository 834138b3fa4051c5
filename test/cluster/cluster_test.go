package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pipeops/pipeops-vm-agent/internal/image"
	"github.com/pipeops/pipeops-vm-agent/test/cluster/internal/node"
	"github.com/pipeops/pipeops-vm-agent/test/cluster/internal/parts"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// needCluster skips where clusters cannot run, and removes those of earlier test
// runs that were killed.
func needCluster(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("brings up clusters")
	}
	if os.Geteuid() != 0 {
		t.Skip("clusters need root")
	}
	clusters, err := List()
	require.NoError(t, err)
	for _, c := range clusters {
		pid, isTest := strings.CutPrefix(c.Name, "test-")
		pid, _, _ = strings.Cut(pid, "-")
		if _, err := os.Stat("/proc/" + pid); isTest && err != nil {
			require.NoError(t, c.Down(t.Context()))
		}
	}
}

func testName(suffix string) string { return fmt.Sprintf("test-%d-%s", os.Getpid(), suffix) }

func bringUp(t *testing.T, options Options) *Cluster {
	t.Helper()
	options.Name = testName(options.Name)
	options.Out = os.Stderr // Build may take minutes: show that it does something
	c, err := Up(t.Context(), options)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Down(context.Background())) })
	return c
}

func kubectl(t *testing.T, c *Cluster, args ...string) string {
	t.Helper()
	output, err := c.Kubectl(t.Context(), args...)
	require.NoError(t, err)
	return strings.TrimSpace(string(output))
}

// eventually polls a condition that reports what it saw instead.
func eventually(t *testing.T, limit time.Duration, condition func() (bool, string)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	require.NoError(t, poll(ctx, "a condition", func() (bool, string, error) {
		done, saw := condition()
		return done, saw, nil
	}))
}

func deployHello(t *testing.T, c *Cluster) (ref string) {
	t.Helper()
	ref, err := c.LoadApp(t.Context(), "hello")
	require.NoError(t, err)
	manifest, err := os.ReadFile("testdata/hello.yaml")
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "hello.yaml")
	require.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(string(manifest), "IMAGE", ref)), 0o600))
	kubectl(t, c, "apply", "-f", file)
	kubectl(t, c, "rollout", "status", "deployment/hello", "--timeout=60s")
	return ref
}

func get(t *testing.T, url string) (string, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	client := http.Client{Timeout: 3 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	return strings.TrimSpace(string(body)), nil
}

// getFromPod asks from a pod of its own.
func getFromPod(t *testing.T, c *Cluster, ref, name, url string) string {
	t.Helper()
	kubectl(t, c, "run", name, "--image="+ref, "--restart=Never", "--", "--get", url)
	kubectl(t, c, "wait", "pod/"+name, "--for=jsonpath={.status.phase}=Succeeded", "--timeout=30s")
	return kubectl(t, c, "logs", name)
}

func TestCluster(t *testing.T) {
	suite.Release(t, "the life of a test cluster")
	needCluster(t)
	c := bringUp(t, Options{Name: "a", WaitMetrics: true})
	ref := deployHello(t, c)

	t.Run("up again finds it", func(t *testing.T) {
		var out strings.Builder
		again, err := Up(t.Context(), Options{Name: c.Name, Out: &out})
		require.NoError(t, err)
		require.Equal(t, c.InitPID(), again.InitPID())
		require.Contains(t, out.String(), "is up already")
		_, err = Up(t.Context(), Options{Name: c.Name, ControlPlaneOnly: true})
		require.ErrorContains(t, err, "runs already")
	})
	t.Run("kubeconfig is private", func(t *testing.T) {
		info, err := os.Stat(c.Kubeconfig())
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode())
	})
	t.Run("Service from the machine", func(t *testing.T) {
		ip := kubectl(t, c, "get", "service", "hello", "-o", "jsonpath={.spec.clusterIP}")
		pods := map[string]bool{}
		eventually(t, 2*time.Minute, func() (bool, string) {
			answer, err := get(t, "http://"+ip+"/")
			if err != nil {
				return false, err.Error()
			}
			require.Regexp(t, `^hello from hello-.*: good morning$`, answer)
			pods[answer] = true
			return len(pods) == 2, "one pod answers all"
		})
	})
	t.Run("Service by DNS from a pod", func(t *testing.T) {
		require.Contains(t, getFromPod(t, c, ref, "by-dns", "http://hello.default.svc.cluster.local/"), "good morning")
	})
	t.Run("pods reach the machine", func(t *testing.T) {
		listener, err := net.Listen("tcp", net.JoinHostPort(c.HostIP(), "0"))
		require.NoError(t, err)
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "the machine")
		}))
		require.NoError(t, server.Listener.Close())
		server.Listener = listener
		server.Start()
		defer server.Close()
		_, port, err := net.SplitHostPort(listener.Addr().String())
		require.NoError(t, err)
		require.Equal(t, "the machine", getFromPod(t, c, ref, "to-host", "http://"+HostName+":"+port+"/"))
	})
	t.Run("a pod reaches itself through its Service", func(t *testing.T) {
		kubectl(t, c, "scale", "deployment/hello", "--replicas=1")
		kubectl(t, c, "rollout", "status", "deployment/hello", "--timeout=60s")
		require.Contains(t, kubectl(t, c, "exec", "deployment/hello", "--", "/hello", "--get", "http://hello/"), "good morning")
	})
	t.Run("a missing image fails in seconds", func(t *testing.T) {
		start := time.Now()
		kubectl(t, c, "run", "missing", "--image=registry.example.com/team/nothing:v9", "--restart=Never")
		eventually(t, 2*time.Minute, func() (bool, string) {
			reason := kubectl(t, c, "get", "pod", "missing", "-o", "jsonpath={.status.containerStatuses[0].state.waiting.reason}")
			return reason == "ErrImagePull" || reason == "ImagePullBackOff", reason
		})
		t.Logf("after %s", time.Since(start))
	})
	t.Run("metrics", func(t *testing.T) {
		require.Contains(t, kubectl(t, c, "top", "nodes"), c.NodeName())
	})
	t.Run("images from files", func(t *testing.T) { testLoadFile(t, c) })
	t.Run("Pod Security is enforced", func(t *testing.T) {
		kubectl(t, c, "create", "namespace", "strict")
		kubectl(t, c, "label", "namespace", "strict", "pod-security.kubernetes.io/enforce=restricted")
		_, err := c.Kubectl(t.Context(), "--namespace=strict", "run", "loose", "--image="+ref)
		require.ErrorContains(t, err, "violates PodSecurity")
	})
	t.Run("a component that ends is restarted", func(t *testing.T) {
		require.NoError(t, c.ExecCommand(t.Context(), "pkill", "-f", "kube-scheduler").Run())
		eventually(t, 2*time.Minute, func() (bool, string) {
			events, err := node.Events(c.dir)
			require.NoError(t, err)
			return slices.ContainsFunc(events, func(event node.Event) bool {
				return event.Kind == node.Restarted && event.Name == "kube-scheduler"
			}), "not restarted"
		})
	})
}

func testLoadFile(t *testing.T, c *Cluster) {
	index, err := random.Index(1024, 1, 2)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "images.tar")
	require.NoError(t, image.WriteArchive(file, "ghcr.io/team/two:v1", index))
	require.NoError(t, c.LoadFile(t.Context(), file, ""))
	require.NoError(t, c.LoadFile(t.Context(), file, "quay.io/other/name:v2"))
	for _, path := range []string{"team/two/manifests/v1", "other/name/manifests/v2"} {
		answer, err := get(t, "http://"+c.Registry()+"/v2/"+path)
		require.NoError(t, err)
		require.Contains(t, answer, "manifests")
	}
}

func TestCluster_TwoSideBySide(t *testing.T) {
	suite.Release(t, "further lives of test clusters")
	needCluster(t)
	options := Options{WithoutMetrics: true}
	options.Name = "b"
	first := bringUp(t, options)
	options.Name = "c"
	second := bringUp(t, options)
	for _, c := range []*Cluster{first, second} {
		deployHello(t, c)
	}
	seen := map[string]bool{}
	for _, c := range []*Cluster{first, second} {
		ip := kubectl(t, c, "get", "service", "hello", "-o", "jsonpath={.spec.clusterIP}")
		require.False(t, seen[ip])
		seen[ip] = true
		_, err := get(t, "http://"+ip+"/")
		require.NoError(t, err)
	}
	require.NoError(t, first.Down(t.Context()))
	require.Equal(t, second.NodeName(), kubectl(t, second, "get", "nodes", "-o", "jsonpath={.items[*].metadata.name}"))
}

func TestCluster_ControlPlaneOnly(t *testing.T) {
	needCluster(t)
	c := bringUp(t, Options{Name: "d", ControlPlaneOnly: true})
	require.Equal(t, "configmap/x created", kubectl(t, c, "create", "configmap", "x"))
	require.Error(t, c.LoadImage(t.Context(), "x", nil), "there is no registry")

	const apiServer = "kube-apiserver"
	before, err := c.componentPID(apiServer)
	require.NoError(t, err)
	require.NoError(t, c.SignalComponent(apiServer, unix.SIGKILL))
	eventually(t, time.Minute, func() (bool, string) {
		_, err := c.Kubectl(t.Context(), "get", "configmap", "x")
		return err == nil, fmt.Sprint(err)
	})
	after, err := c.componentPID(apiServer)
	require.NoError(t, err)
	require.NotEqual(t, before, after)
	require.ErrorContains(t, c.SignalComponent("kubelet", unix.SIGKILL), "kubelet does not run")
}

// machine is what a cluster could leave behind.
type machine struct{ mounts, links, cgroups, processes []string }

// linkIndex tells the cluster's interface from one of the same name that another
// cluster gets as soon as this one is gone. Its routes go with it.
func linkIndex(t *testing.T, c *Cluster) string {
	t.Helper()
	index, err := os.ReadFile("/sys/class/net/" + c.state.Network.device() + "/ifindex")
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	require.NoError(t, err)
	return string(index)
}

func inspect(t *testing.T, c *Cluster, link, pidNamespace string) machine {
	t.Helper()
	var m machine
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	m.mounts = strings.Split(string(mounts), "\n")
	if linkIndex(t, c) == link {
		m.links = []string{link}
	}
	for _, dir := range c.state.Cgroup.Dirs {
		if _, err := os.Stat(dir); err == nil {
			m.cgroups = append(m.cgroups, dir)
		}
	}
	namespaces, err := filepath.Glob("/proc/[0-9]*/ns/pid")
	require.NoError(t, err)
	for _, path := range namespaces {
		pid, err := strconv.Atoi(strings.Split(path, "/")[2])
		require.NoError(t, err)
		// A zombie only waits for the machine's own process 1.
		if _, status, err := procStat(pid); err != nil || status == "Z" {
			continue
		}
		if target, err := os.Readlink(path); err == nil && target == pidNamespace {
			m.processes = append(m.processes, path)
		}
	}
	return m
}

func TestCluster_DownLeavesNothing(t *testing.T) {
	needCluster(t)
	sysctls := readSysctls(t)
	c := bringUp(t, Options{Name: "e", WithoutMetrics: true})
	deployHello(t, c)
	pidNamespace, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", c.InitPID()))
	require.NoError(t, err)
	link := linkIndex(t, c)
	require.NotEmpty(t, link)
	during := inspect(t, c, link, pidNamespace)
	require.NotEmpty(t, during.links)
	require.NotEmpty(t, during.cgroups)
	require.Greater(t, len(during.processes), 10)
	require.Equal(t, sysctls, readSysctls(t), "the machine's settings while it runs")

	require.NoError(t, c.Down(t.Context()))
	after := inspect(t, c, link, pidNamespace)
	require.Equal(t, machine{mounts: during.mounts}, after)
	left, err := filepath.Glob(c.dir + "*")
	require.NoError(t, err)
	require.Empty(t, left)
	require.NoError(t, Down(t.Context(), c.Name), "down again")
	_, err = Get(c.Name)
	require.ErrorIs(t, err, ErrNotFound)
}

func readSysctls(t *testing.T) map[string]string {
	t.Helper()
	values := map[string]string{}
	for _, name := range []string{"vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops", "net/ipv4/ip_forward"} {
		content, err := os.ReadFile("/proc/sys/" + name)
		require.NoError(t, err)
		values[name] = string(content)
	}
	return values
}

// TestCluster_UpAfterDeath: what a cluster that died leaves is cleaned up by the next
// one of its name.
func TestCluster_UpAfterDeath(t *testing.T) {
	suite.Release(t, "further lives of test clusters")
	needCluster(t)
	c := bringUp(t, Options{Name: "f", ControlPlaneOnly: true})
	require.NoError(t, unix.Kill(c.InitPID(), unix.SIGKILL))
	eventually(t, 2*time.Minute, func() (bool, string) { return !c.Running(), "still running" })
	_, err := Get(c.Name)
	require.ErrorIs(t, err, ErrNotFound)
	again := bringUp(t, Options{Name: "f", ControlPlaneOnly: true})
	require.NotEqual(t, strconv.Itoa(c.InitPID()), strconv.Itoa(again.InitPID()))
}

// TestCluster_UpExplainsFailure: when a component dies, the error has the end of its log.
func TestCluster_UpExplainsFailure(t *testing.T) {
	needCluster(t)
	set, err := buildParts(t.Context(), parts.Extra{}, os.Stderr)
	require.NoError(t, err)
	set.Hyperkube = filepath.Join(t.TempDir(), "kubernetes")
	script := "#!/bin/sh\necho cannot go on: $1 >&2\nexit 7\n"
	require.NoError(t, os.WriteFile(set.Hyperkube, []byte(script), 0o755))
	options := Options{Name: testName("g"), Out: io.Discard}
	_, err = up(t.Context(), options, set)
	require.ErrorContains(t, err, "kube-apiserver exited with code 7")
	require.ErrorContains(t, err, "kube-apiserver.log")
	require.ErrorContains(t, err, "cannot go on: kube-apiserver")
	_, err = find(options.Name)
	require.ErrorIs(t, err, ErrNotFound, "nothing is left of it")
}
