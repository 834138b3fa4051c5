package source

import (
	"context"
	"net/http"
	"sync"

	"github.com/rs/zerolog"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/pipeops/pipeops-vm-agent/internal/admission"
	"github.com/pipeops/pipeops-vm-agent/internal/kubeclient"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
)

// cluster is where the sources are. Its clients are made when they are used first.
type cluster struct {
	rest       *rest.Config
	namespace  string   // the agent's own
	namespaces []string // the only ones that it may manage; empty for all
	log        zerolog.Logger

	mu  sync.Mutex
	api *api
}

type api struct {
	objects   dynamic.Interface
	discovery *discovery.DiscoveryClient
}

func (c *cluster) client() (*api, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.api != nil {
		return c.api, nil
	}
	rc, hc, err := kubeclient.New(c.rest)
	if err != nil {
		return nil, err
	}
	made, err := newAPI(rc, hc)
	if err != nil {
		return nil, err
	}
	c.api = made
	return made, nil
}

func newAPI(rc *rest.Config, hc *http.Client) (*api, error) {
	objects, err := dynamic.NewForConfigAndClient(rc, hc)
	if err != nil {
		return nil, err
	}
	d, err := discovery.NewDiscoveryClientForConfigAndClient(rc, hc)
	return &api{objects, d}, err
}

// on returns the sources of a managed namespace.
func (c *cluster) on(ctx context.Context, namespace string) (dynamic.ResourceInterface, error) {
	api, err := c.client()
	if err != nil {
		return nil, err
	}
	return api.objects.Resource(resource).Namespace(namespace), c.admit(ctx, api, namespace)
}

// admit refuses a namespace that is not the agent's.
func (c *cluster) admit(ctx context.Context, api *api, namespace string) error {
	_, err := admission.Namespace(ctx, c.scope(), namespace, func(ctx context.Context, name string) (*unstructured.Unstructured, error) {
		return api.objects.Resource(admission.Resource).Get(ctx, name, metav1.GetOptions{})
	})
	return err
}

func (c *cluster) scope() objectmeta.Scope {
	return objectmeta.Scope{Agent: c.namespace, Only: c.namespaces}
}

// everywhere returns where sources may be.
func (c *cluster) everywhere() []dynamic.ResourceInterface {
	api, err := c.client()
	if err != nil {
		c.log.Error().Err(err).Msg("not reconciling Git sources: no client for the Kubernetes API")
		return nil
	}
	if len(c.namespaces) == 0 {
		return []dynamic.ResourceInterface{api.objects.Resource(resource)}
	}
	var out []dynamic.ResourceInterface
	for _, namespace := range c.namespaces {
		out = append(out, api.objects.Resource(resource).Namespace(namespace))
	}
	return out
}
