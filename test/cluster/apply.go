package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
)

const fieldManager = "pipeops-test-cluster"

// apiClient is Up's client of the Kubernetes API.
type apiClient struct {
	typed   kubernetes.Interface
	dynamic dynamic.Interface
}

// RESTConfig returns the configuration for clients of the cluster's API, as its administrator.
func (c *Cluster) RESTConfig() (*rest.Config, error) { return restConfig(c.Kubeconfig()) }

func restConfig(kubeconfig string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	// The cluster is on this machine, so HTTPS_PROXY does not apply.
	config.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	return config, nil
}

func newAPIClient(kubeconfig string) (*apiClient, error) {
	config, err := restConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = 200, 400
	var client apiClient
	if client.typed, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("make Kubernetes client: %w", err)
	}
	if client.dynamic, err = dynamic.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("make Kubernetes client: %w", err)
	}
	return &client, nil
}

// apply applies the manifest's objects in their order.
func (a *apiClient) apply(ctx context.Context, manifest []byte) error {
	groups, err := restmapper.GetAPIGroupResources(a.typed.Discovery())
	if err != nil {
		return fmt.Errorf("discover the API: %w", err)
	}
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("decode manifest: %w", err)
		}
		kind := object.GroupVersionKind()
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			return fmt.Errorf("apply %s %s: %w", kind.Kind, object.GetName(), err)
		}
		_, err = a.dynamic.Resource(mapping.Resource).Namespace(object.GetNamespace()).
			Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
		if err != nil {
			return fmt.Errorf("apply %s %s: %w", kind.Kind, object.GetName(), err)
		}
	}
}

func (a *apiClient) waitNode(ctx context.Context, name string) error {
	return poll(ctx, "node "+name, func() (bool, string, error) {
		node, err := a.typed.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, "", err
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady {
				return condition.Status == corev1.ConditionTrue, condition.Message, nil
			}
		}
		return false, "no status yet", nil
	})
}

// waitDeployment waits for a Deployment of kube-system.
func (a *apiClient) waitDeployment(ctx context.Context, name string) error {
	return poll(ctx, "Deployment "+name, func() (bool, string, error) {
		deployment, err := a.typed.AppsV1().Deployments(metav1.NamespaceSystem).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, "", err
		}
		for _, condition := range deployment.Status.Conditions {
			if condition.Type == appsv1.DeploymentAvailable {
				return condition.Status == corev1.ConditionTrue, condition.Message, nil
			}
		}
		return false, "no status yet", nil
	})
}

// waitMetrics waits until the aggregated API has figures of a node.
func (a *apiClient) waitMetrics(ctx context.Context) error {
	return poll(ctx, "metrics-server", func() (bool, string, error) {
		var list metav1.PartialObjectMetadataList
		err := a.typed.Discovery().RESTClient().Get().AbsPath("/apis/metrics.k8s.io/v1beta1/nodes").Do(ctx).Into(&list)
		return len(list.Items) > 0, "no figures yet", err
	})
}

// WaitMetrics waits until metrics-server has figures, for which Up does not wait.
func (c *Cluster) WaitMetrics(ctx context.Context) error {
	client, err := newAPIClient(c.Kubeconfig())
	if err != nil {
		return err
	}
	return client.waitMetrics(ctx)
}

// poll calls ask until it is done. It treats errors as "not yet", which most of them are, and
// reports the last one when the time is over.
func poll(ctx context.Context, what string, ask func() (done bool, detail string, err error)) error {
	var last string
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(context.Context) (bool, error) {
		done, detail, err := ask()
		if last = detail; err != nil && ctx.Err() == nil {
			last = err.Error()
		}
		return done && err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait for %s: %w (%s)", what, err, last)
	}
	return nil
}
