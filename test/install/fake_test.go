package install

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/pipeops/pipeops-vm-agent/test/cluster"
)

// serveFake answers the fake k3s.
func (w *world) serveFake() error {
	l, err := net.Listen("tcp", net.JoinHostPort(w.network.Host, "0"))
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
	for _, tag := range []string{"dev", "v1.0.0", "v3.0.0", "v3.1.0"} { // the manifest's, the bundle's, and two to upgrade to
		if err := w.Cluster.LoadImage(ctx, "pipeops/agent:"+tag, img); err != nil {
			return err
		}
	}
	if w.api, err = net.Listen("tcp", net.JoinHostPort(w.network.Host, "0")); err != nil {
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
	err := w.nodeReady(r.Context(), join.Node)
	if err != nil {
		http.Error(rw, err.Error(), http.StatusInternalServerError)
		return
	}
	w.answer(rw)
}

// nodeReady makes a Node of that name, and has it ready.
func (w *world) nodeReady(ctx context.Context, name string) error {
	nodes := w.Kube.Clientset.CoreV1().Nodes()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"fake": "yes"}}, Spec: corev1.NodeSpec{Unschedulable: true}}
	_, err := nodes.Create(ctx, node, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) { // the service has started before
		return err
	}
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error { // Kubernetes writes to it too
		node, err := nodes.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		now := metav1.Now()
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: now, LastTransitionTime: now}}
		_, err = nodes.UpdateStatus(ctx, node, metav1.UpdateOptions{})
		return err
	})
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

// relay copies connections.
func relay(l net.Listener, to string) {
	for {
		in, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer in.Close()
			out, err := net.Dial("tcp", to)
			if err != nil {
				return
			}
			defer out.Close()
			go func() { _, _ = io.Copy(out, in) }()
			_, _ = io.Copy(in, out)
		}()
	}
}
