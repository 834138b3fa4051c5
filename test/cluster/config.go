package cluster

import (
	"bytes"
	"embed"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"text/template"

	"golang.org/x/sys/unix"

	"github.com/pipeops/pipeops-vm-agent/test/cluster/internal/node"
	"github.com/pipeops/pipeops-vm-agent/test/cluster/internal/parts"
)

//go:embed config manifests
var files embed.FS

var templates = template.Must(template.New("").Option("missingkey=error").
	ParseFS(files, "config/*", "manifests/*"))

// values are what the templates may use.
type values struct {
	NodeName, HostIP, HostName, DNS, Pods, NodePods, Registry, Snapshotter string
	PauseImage, CoreDNSImage, MetricsServerImage                           string
}

func (c *Cluster) values() values {
	n := c.state.Network
	return values{
		NodeName: c.NodeName(), HostIP: c.HostIP(), HostName: HostName,
		DNS: n.dns().String(), Pods: n.pods().String(),
		NodePods: netip.PrefixFrom(n.pods().Addr(), 24).String(), Registry: c.Registry(), Snapshotter: c.snapshotter(),
		PauseImage: parts.PauseImage, CoreDNSImage: parts.CoreDNSImage, MetricsServerImage: parts.MetricsServerImage,
	}
}

// snapshotter copies layers where it cannot overlay them: overlayfs, which a
// container's own file system is, does not do as a layer of another.
func (c *Cluster) snapshotter() string {
	var stat unix.Statfs_t
	if err := unix.Statfs(c.dir, &stat); err == nil && stat.Type == unix.OVERLAYFS_SUPER_MAGIC {
		return "native"
	}
	return "overlayfs"
}

func render(name string, v values) ([]byte, error) {
	var buf bytes.Buffer
	if err := templates.ExecuteTemplate(&buf, name, v); err != nil {
		return nil, fmt.Errorf("render %s: %w", name, err)
	}
	return buf.Bytes(), nil
}

// writeConfig writes all that process 1 and the components read.
func (c *Cluster) writeConfig(set parts.Set) error {
	if err := makePKI(filepath.Join(c.dir, "pki"), c.Kubeconfig(), c.NodeName(), c.state.Network); err != nil {
		return err
	}
	for name, target := range map[string]string{
		"containerd.toml.tmpl": "containerd.toml",
		"hosts.toml.tmpl":      "certs.d/_default/hosts.toml",
		"cni.conflist.tmpl":    "cni/10-pods.conflist",
		"kubelet.yaml.tmpl":    "kubelet.yaml",
		"proxy.yaml.tmpl":      "proxy.yaml",
	} {
		content, err := render(name, c.values())
		if err != nil {
			return err
		}
		path := filepath.Join(c.dir, target)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return err
		}
	}
	return c.nodeConfig(set).Save(c.dir)
}

func (c *Cluster) nodeConfig(set parts.Set) node.Config {
	n := c.state.Network
	config := node.Config{
		Hostname: c.NodeName(),
		Address:  netip.PrefixFrom(n.node(), n.link().Bits()).String(),
		Gateway:  c.HostIP(),
		CgroupV2: c.state.Cgroup.V2,
		Parts: map[string]string{
			"kubernetes": filepath.Dir(set.Hyperkube), "etcd": filepath.Dir(set.Etcd), "cni": set.CNI,
		},
		Components: components(c, set),
	}
	if c.state.ControlPlaneOnly {
		return config
	}
	if set.KWOK != "" {
		config.Parts["kwok"] = filepath.Dir(set.KWOK)
	}
	config.Registry = c.Registry()
	for _, layout := range set.Images {
		name := filepath.Base(filepath.Dir(layout))
		config.Parts[name] = layout
		config.Blobs = append(config.Blobs, filepath.Join(node.PartsDir, name, "blobs"))
	}
	return config
}
