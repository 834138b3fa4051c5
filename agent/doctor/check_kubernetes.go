package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/internal/app/appcache"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/kubeclient"
)

const (
	// oldestMinor is that of the first Kubernetes with ValidatingAdmissionPolicies,
	// which the agent's manifest needs (docs/adr/0007).
	oldestMinor = 30

	fixCluster  = "start the cluster, or correct KUBECONFIG"
	fixManifest = "apply the agent's manifest: kubectl apply -f agent.yaml (or service.yaml)"
)

// kubernetes asks the API server which version it is.
func (c *cluster) kubernetes(ctx context.Context) []Finding {
	if c.KubernetesErr != nil {
		return failure(c.KubernetesErr, fixCluster)
	}
	if c.Kubernetes == nil {
		return failed("no cluster is configured", "run the agent as a pod, or name a kubeconfig with KUBECONFIG or --kubeconfig")
	}
	raw, err := c.ask(ctx, "/version")
	switch {
	case apierrors.IsUnauthorized(err):
		return failed(c.Kubernetes.Host+" does not accept the credentials", "make new ones (docs/cluster-owner/service.md), or correct KUBECONFIG")
	case err != nil:
		return failure(fmt.Errorf("%s does not answer: %w", c.Kubernetes.Host, err), fixCluster)
	}
	var v version.Info
	if err := json.Unmarshal(raw, &v); err != nil {
		return failed("what answers at "+c.Kubernetes.Host+" is not Kubernetes", fixCluster)
	}
	minor, _ := strconv.Atoi(strings.TrimRight(v.Minor, "+"))
	if v.Major == "1" && minor < oldestMinor {
		return failed(fmt.Sprintf("%s is too old", v.GitVersion), fmt.Sprintf("upgrade the cluster to 1.%d or newer", oldestMinor))
	}
	return ok(v.GitVersion + " at " + c.Kubernetes.Host)
}

// ask reads a path of the API server.
func (c *cluster) ask(ctx context.Context, path string) ([]byte, error) {
	core, err := corev1client.NewForConfig(c.restConfig())
	if err != nil {
		return nil, err
	}
	return core.RESTClient().Get().AbsPath(path).DoRaw(ctx)
}

// restConfig returns the agent's, for one examination.
func (c *cluster) restConfig() *rest.Config {
	rc := kubeclient.Config(c.Kubernetes)
	rc.Timeout = c.Timeout
	return rc
}

// resource looks for the App resource.
func (c *cluster) resource(ctx context.Context) []Finding {
	reader, err := c.reader()
	if err != nil {
		return failure(err, fixCluster)
	}
	missing := &app.MissingCRDError{}
	switch err := app.CheckCRD(ctx, reader); {
	case errors.As(err, &missing):
		return failed(missing.Reason, fixManifest)
	case err != nil:
		return failure(err, fixManifest)
	}
	return ok(v1alpha1.CRDName + " is there, in the version that this agent needs")
}

// reader reads bare metadata.
func (c *cluster) reader() (client.Client, error) {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}, meta.RESTScopeRoot)
	mapper.Add(namespaceKind, meta.RESTScopeRoot)
	mapper.Add(appcache.HTTPRouteKind, meta.RESTScopeNamespace)
	rc := c.restConfig()
	hc, err := rest.HTTPClientFor(rc)
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	return client.New(rc, client.Options{Scheme: scheme, Mapper: mapper, HTTPClient: hc})
}

var namespaceKind = schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}
