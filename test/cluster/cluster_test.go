package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

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

// TestCluster_EnforcesPodSecurity: an API server alone refuses a pod that violates its namespace's
// level.
func TestCluster_EnforcesPodSecurity(t *testing.T) {
	needCluster(t)
	c := bringUp(t, Options{Name: "d", ControlPlaneOnly: true})
	kubectl(t, c, "create", "namespace", "strict")
	kubectl(t, c, "label", "namespace", "strict", "pod-security.kubernetes.io/enforce=restricted")
	eventually(t, time.Minute, func() (bool, string) { // until the namespace has its ServiceAccount
		_, err := c.Kubectl(t.Context(), "--namespace=strict", "run", "loose", "--image=apps.test/none")
		return err != nil && strings.Contains(err.Error(), "violates PodSecurity"), fmt.Sprint(err)
	})
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
