package kubeclient

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Getter gives the Helm SDK clients of a configuration, and the default namespace.
type Getter struct {
	Config    *rest.Config
	Namespace string
	Discovery discovery.CachedDiscoveryInterface
	Mapper    meta.RESTMapper
}

// NewGetter returns a getter. It makes no requests.
func NewGetter(config *rest.Config, namespace string) (*Getter, error) {
	d, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("prepare the Kubernetes client: %w", err)
	}
	cached := memory.NewMemCacheClient(d)
	return &Getter{config, namespace, cached, restmapper.NewDeferredDiscoveryRESTMapper(cached)}, nil
}

// ToRESTConfig implements action.RESTClientGetter. Its callers write to the result.
func (g *Getter) ToRESTConfig() (*rest.Config, error) { return rest.CopyConfig(g.Config), nil }

// ToDiscoveryClient implements action.RESTClientGetter.
func (g *Getter) ToDiscoveryClient() (discovery.CachedDiscoveryInterface, error) {
	return g.Discovery, nil
}

// ToRESTMapper implements action.RESTClientGetter.
func (g *Getter) ToRESTMapper() (meta.RESTMapper, error) { return g.Mapper, nil }

// ToRawKubeConfigLoader implements genericclioptions.RESTClientGetter. Helm uses only its
// namespace.
func (g *Getter) ToRawKubeConfigLoader() clientcmd.ClientConfig {
	return clientcmd.NewDefaultClientConfig(*clientcmdapi.NewConfig(), &clientcmd.ConfigOverrides{
		Context: clientcmdapi.Context{Namespace: g.Namespace},
	})
}
