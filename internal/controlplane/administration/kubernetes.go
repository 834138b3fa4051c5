package administration

import (
	"cmp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/idtoken"
)

// The defaults of store.Kubernetes: the issuer of kubeadm and k3s, and the agent's own service
// account.
const (
	DefaultKubernetesIssuer = "https://kubernetes.default.svc.cluster.local"
	DefaultServiceAccount   = "pipeops:pipeops-agent"
)

// checkKubernetes sets the defaults of a cluster that stands for a secret, and returns what is
// wrong. The audience is the control plane's URL by default.
func checkKubernetes(k *store.Kubernetes, url string) error {
	if k == nil {
		return nil
	}
	k.Issuer, k.ServiceAccount, k.Audience = cmp.Or(k.Issuer, DefaultKubernetesIssuer), cmp.Or(k.ServiceAccount, DefaultServiceAccount), cmp.Or(k.Audience, url)
	namespace, name, _ := strings.Cut(k.ServiceAccount, ":")
	switch {
	case !idtoken.ValidIssuer(k.Issuer):
		return invalid("give issuer as `kubectl get --raw /.well-known/openid-configuration` prints it", "--kubernetes-issuer: %.200q is not https://HOST[:PORT][/PATH]", k.Issuer)
	case len(validation.IsDNS1123Label(namespace))+len(validation.IsDNS1123Subdomain(name)) > 0:
		return invalid("give NAMESPACE:NAME, such as "+DefaultServiceAccount, "--service-account: %.200q names no service account", k.ServiceAccount)
	case k.Audience == "":
		return invalid("give the audience of the agent's volume, or start the control plane first: its URL is the default", "--kubernetes-audience: is missing, and the control plane has never served")
	case len(k.Audience) > MaxClaim:
		return invalid("give a shorter one", "--kubernetes-audience: is longer than %d bytes", MaxClaim)
	}
	keys, err := idtoken.ParseKeys(k.Keys)
	if err != nil {
		return invalid("", "--kubernetes-jwks: %s", err.Error())
	}
	k.Keys = keys.String()
	return nil
}
