package harness

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

// Kube is a client to the cluster under test, with an administrator's rights.
type Kube struct {
	Config *rest.Config
	client.Client
	Clientset *kubernetes.Clientset
}

// openKube reads a kubeconfig file, or a list of them as in KUBECONFIG.
func openKube(kubeconfig string) (*Kube, error) {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}
	if files := filepath.SplitList(kubeconfig); len(files) > 1 {
		rules = &clientcmd.ClientConfigLoadingRules{Precedence: files}
	}
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", kubeconfig, err)
	}
	cfg.QPS, cfg.Burst = 100, 200
	ctrllog.SetLogger(logr.Discard()) // controller-runtime complains without a logger
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		return nil, err
	}
	set, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	return &Kube{Config: cfg, Client: c, Clientset: set}, nil
}

// Apply applies one object. It waits for a kind whose CRD was created a moment ago.
func (k *Kube) Apply(ctx context.Context, obj *unstructured.Unstructured) error {
	return Eventually(ctx, "the cluster takes "+obj.GetKind()+" "+obj.GetName(), func(ctx context.Context) error {
		apply := client.ApplyConfigurationFromUnstructured(obj.DeepCopy())
		err := k.Client.Apply(ctx, apply, client.FieldOwner("pipeops-harness"), client.ForceOwnership)
		if err != nil && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
			return fmt.Errorf("%s %s: %w", obj.GetKind(), obj.GetName(), err)
		}
		return err
	})
}

// ServiceGet sends a request to a Service through the API server's proxy, which works with every
// cluster that a kubeconfig reaches.
func (k *Kube) ServiceGet(ctx context.Context, namespace, service string, port int, path string) (string, error) {
	answer, err := k.Clientset.CoreV1().Services(namespace).
		ProxyGet("http", service, fmt.Sprint(port), path, nil).DoRaw(ctx)
	return string(answer), err
}
