package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/test/cluster"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/machine"
)

const (
	k3sVersion  = "v1.35.5+k3s1"
	joinToken   = "K10fake::server:join-7f1c9a"
	closeBounds = 2 * time.Minute
)

// world is everything around the machines that install.sh runs on: the network,
// the download site, a control plane, and what the fake k3s starts.
type world struct {
	*harness.System
	network *machine.Network
	site    *site
	fake    *httptest.Server

	mu      sync.Mutex
	cluster time.Duration // how long the last cluster took to start
	api     net.Listener
}

var shared struct {
	sync.Once
	*world
	err error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.world != nil {
		if err := shared.close(); err != nil {
			fmt.Fprintln(os.Stderr, "clean-up:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// theWorld starts everything for the first test that asks.
func theWorld(t *testing.T) *world {
	t.Helper()
	if testing.Short() || os.Geteuid() != 0 {
		t.Skip("boots machines and clusters, as root")
	}
	shared.Do(func() { shared.world, shared.err = newWorld(context.Background()) })
	require.NoError(t, shared.err)
	return shared.world
}

func newWorld(ctx context.Context) (w *world, err error) {
	w = &world{}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
			w = nil
		}
	}()
	if err := cluster.Build(ctx, os.Stderr); err != nil {
		return w, err
	}
	if w.network, err = machine.NewNetwork(); err != nil {
		return w, err
	}
	w.System, err = harness.New(harness.Options{Name: fmt.Sprintf("test-%d-install", os.Getpid()), Out: os.Stderr, ListenIP: w.network.Host})
	if err != nil {
		return w, err
	}
	if w.Binaries, err = harness.Build(ctx); err != nil {
		return w, err
	}
	if err := w.StartBroker(ctx); err != nil {
		return w, err
	}
	if err := w.StartControlPlane(ctx); err != nil {
		return w, err
	}
	if w.site, err = newSite(w.network.Host); err != nil {
		return w, err
	}
	if err := w.publish(ctx); err != nil {
		return w, err
	}
	return w, w.serveFake()
}

// publish fills the download site.
func (w *world) publish(ctx context.Context) error {
	k3s := filepath.Join(w.Dir, "fakek3s")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", k3s, "./test/install/fakek3s")
	build.Dir, build.Env = harness.Root(), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build fakek3s: %w\n%s", err, out)
	}
	files := map[string][]byte{}
	for name, path := range map[string]string{
		"k3s": k3s, "k3s-install": "testdata/fake-k3s-install.sh", "k3d": "testdata/fake-k3d.sh",
		"agent.yaml": "../../deployments/agent.yaml", "install.sh": "../../scripts/install.sh", "join-worker.sh": "../../scripts/join-worker.sh",
	} {
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files[name] = content
	}
	w.site.put(k3sAssets, "sha256sum-amd64.txt", map[string][]byte{"k3s": files["k3s"]})
	w.site.put(k3sSource, "install.sh.sha256sum", map[string][]byte{"install.sh": files["k3s-install"]})
	w.site.put("/github.com/k3d-io/k3d/releases/download/v5.8.3/", "checksums.txt", map[string][]byte{"k3d-linux-amd64": files["k3d"]})
	w.site.put(releases+"dev/", "SHA256SUMS", map[string][]byte{
		"agent.yaml": files["agent.yaml"], "install.sh": files["install.sh"], "join-worker.sh": files["join-worker.sh"],
	})
	return nil
}

// serveFake answers the fake k3s.
func (w *world) serveFake() error {
	l, err := net.Listen("tcp", net.JoinHostPort(w.network.Host, "0")) //nolint:noctx // of the tests
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /fake/server", w.fakeServer)
	mux.HandleFunc("POST /fake/agent", w.fakeAgent)
	mux.HandleFunc("POST /fake/uninstall", w.fakeUninstall)
	w.fake = &httptest.Server{Listener: l, Config: &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}}
	w.fake.Start()
	return nil
}

// fakeServer starts the test cluster, with the agent's image in it.
func (w *world) fakeServer(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.Cluster == nil {
		start := time.Now()
		if err := w.startCluster(context.WithoutCancel(r.Context())); err != nil {
			http.Error(rw, err.Error(), http.StatusInternalServerError)
			return
		}
		w.cluster = time.Since(start)
	}
	w.answer(rw)
}

func (w *world) startCluster(ctx context.Context) (err error) {
	if err := w.StartKubernetes(ctx); err != nil {
		return err
	}
	img, err := cluster.BuildProgram(ctx, cluster.Program{Package: "./cmd/agent", Name: "pipeops-agent"})
	if err != nil {
		return err
	}
	for _, tag := range []string{"dev", "v1.0.0", "v3.0.0"} { // the manifest's, the bundle's, and one to upgrade to
		if err := w.Cluster.LoadImage(ctx, "pipeops/agent:"+tag, img); err != nil {
			return err
		}
	}
	if w.api, err = net.Listen("tcp", net.JoinHostPort(w.network.Host, "0")); err != nil { //nolint:noctx // of the tests
		return err
	}
	go relay(w.api, net.JoinHostPort(w.Cluster.NodeIP(), "6443"))
	return nil
}

// answer tells a fake k3s how to reach the cluster.
func (w *world) answer(rw http.ResponseWriter) {
	kubeconfig, err := os.ReadFile(w.Kubeconfig())
	if err != nil {
		http.Error(rw, err.Error(), http.StatusInternalServerError)
		return
	}
	local := strings.ReplaceAll(string(kubeconfig), "https://"+w.Cluster.NodeIP()+":6443", "https://127.0.0.1:6443")
	_ = json.NewEncoder(rw).Encode(map[string]string{
		"kubeconfig": local, "api": w.api.Addr().String(), "token": joinToken,
		"kubectl": w.Cluster.KubectlCommand(context.Background()).Path,
	})
}

// fakeAgent makes a Node of a worker whose token is right.
func (w *world) fakeAgent(rw http.ResponseWriter, r *http.Request) {
	var join struct{ Server, Token, Node string }
	if err := json.NewDecoder(io.LimitReader(r.Body, 1<<16)).Decode(&join); err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if join.Token != joinToken || w.Cluster == nil {
		http.Error(rw, "token is not valid for "+join.Server, http.StatusUnauthorized)
		return
	}
	nodes := w.Kube.Clientset.CoreV1().Nodes()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: join.Node, Labels: map[string]string{"fake": "yes"}}, Spec: corev1.NodeSpec{Unschedulable: true}}
	_, err := nodes.Create(r.Context(), node, metav1.CreateOptions{})
	if err == nil || apierrors.IsAlreadyExists(err) { // the service has started before
		node, err = nodes.Get(r.Context(), join.Node, metav1.GetOptions{})
	}
	if err == nil {
		now := metav1.Now()
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: now, LastTransitionTime: now}}
		_, err = nodes.UpdateStatus(r.Context(), node, metav1.UpdateOptions{})
	}
	if err != nil {
		http.Error(rw, err.Error(), http.StatusInternalServerError)
		return
	}
	w.answer(rw)
}

func (w *world) fakeUninstall(rw http.ResponseWriter, r *http.Request) {
	if err := w.stopCluster(context.WithoutCancel(r.Context())); err != nil {
		http.Error(rw, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = rw.Write([]byte("{}"))
}

// stopCluster takes the cluster down, if there is one.
func (w *world) stopCluster(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.Cluster == nil {
		return nil
	}
	err := errors.Join(w.api.Close(), w.Cluster.Down(ctx))
	w.Cluster = nil
	return err
}

func (w *world) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeBounds)
	defer cancel()
	var errs []error
	if w.fake != nil {
		w.fake.Close()
	}
	if w.site != nil {
		w.site.Close()
	}
	if w.System != nil {
		errs = append(errs, w.System.Close(ctx))
	}
	if w.network != nil {
		errs = append(errs, w.network.Close())
	}
	return errors.Join(errs...)
}

// relay copies connections.
func relay(l net.Listener, to string) {
	for {
		in, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer in.Close()                //nolint:errcheck // both ways are over
			out, err := net.Dial("tcp", to) //nolint:noctx // of the tests
			if err != nil {
				return
			}
			defer out.Close() //nolint:errcheck // both ways are over
			go func() { _, _ = io.Copy(out, in) }()
			_, _ = io.Copy(in, out)
		}()
	}
}

// listen opens a port that machines reach.
func (w *world) listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", net.JoinHostPort(w.network.Host, "0"))
	require.NoError(t, err)
	return l
}
