package components

import (
	"fmt"
	"log/slog"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/kube"
	"helm.sh/helm/v4/pkg/storage"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/pipeops/pipeops-vm-agent/internal/helm/stored"
	"github.com/pipeops/pipeops-vm-agent/internal/kubeclient"
)

// configuration returns what Helm works with in a namespace: the caller's own rights, and records
// that the helm program reads, too.
func configuration(config *rest.Config, namespace string) (*action.Configuration, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("prepare the Kubernetes client: %w", err)
	}
	outlines, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("prepare the Kubernetes client: %w", err)
	}
	g, err := kubeclient.NewGetter(config, namespace)
	if err != nil {
		return nil, err
	}
	objects := kube.New(g)
	objects.Namespace = namespace
	objects.SetLogger(slog.DiscardHandler) // its errors come back, too
	cfg := action.NewConfiguration(action.ConfigurationSetLogger(slog.DiscardHandler))
	cfg.RESTClientGetter, cfg.KubeClient = g, objects
	cfg.Releases = storage.Init(stored.New(outlines, client.CoreV1(), namespace, slog.DiscardHandler, nil)) // put reserves the memory
	cfg.Releases.SetLogger(slog.DiscardHandler)
	cfg.Releases.MaxHistory = maxHistory
	return cfg, nil
}
