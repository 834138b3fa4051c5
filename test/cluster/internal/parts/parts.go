// Package parts provides the parts of a test cluster. Kubernetes, etcd, CoreDNS and metrics-server
// come from pinned Go modules, the container runtime and network tools from the distribution. A
// cache keeps all parts, each under a key of its inputs, so that nothing is built twice.
package parts

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/pipeops/pipeops-vm-agent/test/inputs"
)

// KubernetesVersion is the version of the module in test/cluster/kubernetes.
const KubernetesVersion = "v1.36.3"

// Names of the images that every cluster starts with.
const (
	PauseImage         = "cluster.test/pause:built"
	CoreDNSImage       = "cluster.test/coredns:built"
	MetricsServerImage = "cluster.test/metrics-server:built"
)

// Set holds the paths of the built parts.
type Set struct {
	// Source is the repository's root.
	Source string
	// Hyperkube is all of Kubernetes in one binary, with the component's name as its first
	// argument.
	Hyperkube string
	Etcd      string
	// Cluster is the cluster tool itself, which is process 1 of a cluster.
	Cluster string
	// Images has an OCI image layout per image, and Blobs their content.
	Images []string
	// CNI is the directory of network plugins.
	CNI string
	// Containerd is the container runtime.
	Containerd string
	// KWOK plays the kubelets of simulated nodes; empty unless requested.
	KWOK string
}

// Extra selects parts that only some clusters need.
type Extra struct {
	// KWOK is for simulated nodes.
	KWOK bool
}

// Build makes the missing parts, and returns at once if there are none.
func Build(ctx context.Context, cache string, extra Extra, out io.Writer) (Set, error) {
	b := &builder{source: inputs.Root(), dir: filepath.Join(cache, "build"), progress: newProgress(out)}
	if err := os.MkdirAll(b.dir, 0o755); err != nil { // binaries that all users may run
		return Set{}, fmt.Errorf("make cache: %w", err)
	}
	return b.build(ctx, extra)
}

func (b *builder) build(ctx context.Context, extra Extra) (Set, error) {
	if err := b.packages(ctx); err != nil {
		return Set{}, err
	}
	set := Set{Source: b.source}
	binaries := b.binaries(extra)
	b.progress.total = 1 + len(binaries) + 1
	paths := make(map[string]string, len(binaries))
	for i, binary := range binaries {
		b.progress.step = i + 2
		path, err := b.binary(ctx, binary)
		if err != nil {
			return Set{}, err
		}
		paths[binary.name] = path
	}
	b.progress.step = b.progress.total
	images, err := b.images(ctx, paths)
	if err != nil {
		return Set{}, err
	}
	set.Hyperkube, set.Etcd, set.Cluster = paths["kubernetes"], paths["etcd"], paths["cluster"]
	set.KWOK, set.Images = paths["kwok"], images
	if set.CNI, err = cniDir(); err != nil {
		return Set{}, err
	}
	set.Containerd, err = lookPath("containerd")
	return set, err
}

// binary describes one program to build.
type binary struct {
	name, title string
	// dir is the module's directory, below the repository's root.
	dir string
	// pkg is the main package.
	pkg string
	// inputs are the files and directories, below the root, from which the key is made.
	inputs  []string
	ldflags string
	expect  time.Duration
}

func (b *builder) binaries(extra Extra) []binary {
	const base = "test/cluster/"
	module := func(name, title, pkg, ldflags string, expect time.Duration) binary {
		return binary{
			name: name, title: title, dir: base + name, pkg: pkg, ldflags: ldflags, expect: expect,
			inputs: []string{base + name},
		}
	}
	own := func(name, title, pkg string, inputs ...string) binary {
		return binary{
			name: name, title: title, dir: ".", pkg: pkg, expect: 30 * time.Second,
			inputs: append(inputs, "go.mod", "go.sum"),
		}
	}
	list := []binary{
		module("kubernetes", "Kubernetes "+KubernetesVersion, ".", kubernetesLDFlags(), 5*time.Minute),
		module("etcd", "etcd", "go.etcd.io/etcd/server/v3", "", 25*time.Second),
		module("coredns", "CoreDNS", ".", "", 90*time.Second),
		module("metricsserver", "metrics-server", "sigs.k8s.io/metrics-server/cmd/metrics-server", "", 100*time.Second),
		own("pause", "the pause program", "./test/apps/pause", "test/apps/pause"),
		own("cluster", "the cluster tool", "./test/cluster/cmd/cluster", "internal/image", "test/cluster"),
	}
	if extra.KWOK {
		list = append(list, module("kwok", "KWOK", ".", "", 90*time.Second))
	}
	return list
}

// kubernetesLDFlags stamp the version, which the API server reports and kubelets and clients
// compare.
func kubernetesLDFlags() string {
	const component, client = "k8s.io/component-base/version", "k8s.io/client-go/pkg/version"
	return fmt.Sprintf("-X %[1]s.gitVersion=%[3]s -X %[1]s.gitMajor=1 -X %[1]s.gitMinor=36 -X %[1]s.gitTreeState=clean"+
		" -X %[2]s.gitVersion=%[3]s", component, client, KubernetesVersion)
}

// keySalt is in every key: an input that changes all results but is not in a file.
func keySalt() string { return runtime.GOARCH }
