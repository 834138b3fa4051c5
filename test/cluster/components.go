package cluster

import (
	"slices"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/test/cluster/internal/node"
	"github.com/pipeops/pipeops-vm-agent/test/cluster/internal/parts"
)

// Where the parts are within the cluster's namespaces.
const (
	pkiDir        = node.Dir + "/pki"
	hyperkubePath = node.PartsDir + "/kubernetes/kubernetes"
	etcdPath      = node.PartsDir + "/etcd/etcd"
	containerdRun = "/run/containerd/containerd.sock"
	etcdURL       = "http://127.0.0.1:2379"
)

// components returns the processes of a cluster, in the order of their start.
func components(c *Cluster, set parts.Set) []node.Component {
	list := []node.Component{etcd(), apiServer(c)}
	if c.state.ControlPlaneOnly {
		return append(list, controllerManager(c, "--controllers=garbage-collector-controller"))
	}
	list = append(list,
		// It takes almost no time, and the kubelet needs it.
		node.Component{
			Name:    "containerd",
			Command: []string{set.Containerd, "--config", node.Dir + "/containerd.toml"},
			Ready:   node.Probe{Network: "unix", Address: containerdRun},
		},
		controllerManager(c), scheduler(),
		kube("kubelet", "--config="+node.Dir+"/kubelet.yaml", "--kubeconfig="+pkiDir+"/kubelet.kubeconfig",
			"--hostname-override="+c.NodeName(), "--node-ip="+c.NodeIP()),
		kube("kube-proxy", "--config="+node.Dir+"/proxy.yaml"),
	)
	if c.state.SimulatedNodes > 0 {
		list = append(list, kwok(c))
	}
	return list
}

func kube(name string, flags ...string) node.Component {
	return node.Component{Name: name, Command: append([]string{hyperkubePath, name}, flags...)}
}

// etcd is in memory: /run is a tmpfs. Durability would only cost time.
func etcd() node.Component {
	const peer = "http://127.0.0.1:2380"
	return node.Component{
		Name: "etcd",
		Command: []string{
			etcdPath, "--data-dir=/run/etcd", "--unsafe-no-fsync",
			"--listen-client-urls=" + etcdURL, "--advertise-client-urls=" + etcdURL,
			"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
			"--initial-cluster=default=" + peer,
		},
		Ready: node.Probe{Network: "tcp", Address: "127.0.0.1:2379"},
	}
}

func apiServer(c *Cluster) node.Component {
	const issuer = "https://kubernetes.default.svc.cluster.local"
	server := kube("kube-apiserver",
		"--etcd-servers="+etcdURL, "--secure-port=6443", "--advertise-address="+c.NodeIP(),
		"--service-cluster-ip-range="+c.state.Network.services().String(),
		"--authorization-mode=Node,RBAC", "--allow-privileged=true",
		"--client-ca-file="+pkiDir+"/ca.crt",
		"--tls-cert-file="+pkiDir+"/apiserver.crt", "--tls-private-key-file="+pkiDir+"/apiserver.key",
		"--kubelet-client-certificate="+pkiDir+"/apiserver-kubelet-client.crt",
		"--kubelet-client-key="+pkiDir+"/apiserver-kubelet-client.key",
		"--kubelet-certificate-authority="+pkiDir+"/ca.crt", "--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer="+issuer, "--service-account-key-file="+pkiDir+"/sa.pub",
		"--service-account-signing-key-file="+pkiDir+"/sa.key",
		"--requestheader-client-ca-file="+pkiDir+"/front-proxy-ca.crt",
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file="+pkiDir+"/front-proxy-client.crt",
		"--proxy-client-key-file="+pkiDir+"/front-proxy-client.key",
	)
	if c.state.ControlPlaneOnly {
		// No controller creates service accounts there, so every pod would lack one.
		server.Command = append(server.Command, "--disable-admission-plugins=ServiceAccount")
	} else {
		server.Command = append(server.Command, "--enable-admission-plugins="+strings.Join(admission(c), ","))
	}
	server.Ready = node.Probe{URL: "https://127.0.0.1:6443/readyz", CAFile: pkiDir + "/ca.crt"}
	return server
}

// fastClient raises the limits on requests: with the defaults the first default service account
// arrives seconds late, and pods are refused until then.
var fastClient = []string{"--kube-api-qps=500", "--kube-api-burst=1000", "--leader-elect=false"}

func controllerManager(c *Cluster, more ...string) node.Component {
	const config = pkiDir + "/controller-manager.kubeconfig"
	n := c.state.Network
	flags := []string{
		"--kubeconfig=" + config, "--authentication-kubeconfig=" + config, "--authorization-kubeconfig=" + config,
		"--service-account-private-key-file=" + pkiDir + "/sa.key", "--root-ca-file=" + pkiDir + "/ca.crt",
		"--cluster-signing-cert-file=" + pkiDir + "/ca.crt", "--cluster-signing-key-file=" + pkiDir + "/ca.key",
		"--use-service-account-credentials=true",
		"--service-cluster-ip-range=" + n.services().String(),
		"--horizontal-pod-autoscaler-sync-period=2s", // instead of 15
	}
	if c.state.SimulatedNodes == 0 { // simulated pods do not fit into a node's share, nor many nodes into the range
		flags = append(flags, "--allocate-node-cidrs=true", "--cluster-cidr="+n.pods().String(), "--node-cidr-mask-size=24",
			"--node-monitor-grace-period=20s") // instead of 50; simulated kubelets are not that punctual
	} else {
		flags = append(flags, "--allocate-node-cidrs=false")
	}
	return kube("kube-controller-manager", slices.Concat(flags, fastClient, more)...)
}

func scheduler() node.Component {
	const config = pkiDir + "/scheduler.kubeconfig"
	return kube("kube-scheduler", append([]string{
		"--kubeconfig=" + config, "--authentication-kubeconfig=" + config, "--authorization-kubeconfig=" + config,
	}, fastClient...)...)
}
