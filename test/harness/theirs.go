package harness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// theirsTimeout is how long a cluster may take to respond.
const theirsTimeout = 5 * time.Minute

// Theirs is a cluster that the user provides.
type Theirs struct {
	Kubeconfig string
	// Registry is where this machine may push to and the cluster pulls from.
	Registry string
	// Namespace is the namespace for the Apps. It must not exist yet, and is deleted at the end.
	Namespace string
	// Host is the address at which the cluster's pods reach this machine. If empty, it is the
	// address from which this machine reaches the cluster.
	Host string
}

// Check returns what is missing before anything is started.
func (t *Theirs) Check() error {
	if t.Registry == "" {
		return errors.New("KUBECONFIG is set, so the demo uses that cluster, but DEMO_REGISTRY is not " +
			"(fix: set DEMO_REGISTRY to an image registry that this machine can push to and the cluster can pull from, " +
			"e.g. registry.example.com/me; or unset KUBECONFIG to use a cluster of the demo's own)")
	}
	return nil
}

// open refuses a cluster that has any of these objects: the demo would take them over, and delete
// them at its end.
func (t *Theirs) open(ctx context.Context, objects []*unstructured.Unstructured) (*Kube, string, error) {
	ctx, cancel := context.WithTimeout(ctx, theirsTimeout)
	defer cancel()
	kube, err := openKube(t.Kubeconfig)
	if err != nil {
		return nil, "", fmt.Errorf("%w (fix: KUBECONFIG names a kubeconfig file; unset it to use a cluster of the demo's own)", err)
	}
	if _, err := kube.Clientset.CoreV1().Namespaces().Get(ctx, metav1.NamespaceDefault, metav1.GetOptions{}); err != nil {
		return nil, "", fmt.Errorf("the cluster at %s: %w (fix: `kubectl get namespaces` has to work with this KUBECONFIG; unset it to use a cluster of the demo's own)", kube.Config.Host, err)
	}
	for _, obj := range objects {
		switch err := kube.Get(ctx, client.ObjectKeyFromObject(obj), obj.DeepCopy()); {
		case err == nil:
			return nil, "", fmt.Errorf("the cluster at %s has %s %s already: the demo will not touch an agent that is in use (fix: use another cluster, or unset KUBECONFIG)",
				kube.Config.Host, strings.ToLower(obj.GetKind()), obj.GetName())
		case !gone(err):
			return nil, "", fmt.Errorf("the cluster at %s: %w", kube.Config.Host, err)
		}
	}
	if t.Host != "" {
		return kube, t.Host, nil
	}
	host, err := addressTowards(ctx, kube.Config.Host)
	return kube, host, err
}

// addressTowards returns this machine's address on the route to a URL's host.
func addressTowards(ctx context.Context, rawURL string) (string, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return "", err
	}
	port := u.Port()
	if port == "" {
		port = "443"
	}
	conn, err := new(net.Dialer).DialContext(ctx, "udp", net.JoinHostPort(u.Hostname(), port)) // this sends nothing
	if err != nil {
		return "", fmt.Errorf("find this machine's address: %w (fix: set DEMO_HOST)", err)
	}
	defer func() { _ = conn.Close() }()
	host, _, err := net.SplitHostPort(conn.LocalAddr().String())
	if ip := net.ParseIP(host); err == nil && ip.IsLoopback() {
		return "", fmt.Errorf("the cluster's API is at %s, which does not tell how its pods reach this machine "+
			"(fix: set DEMO_HOST to this machine's address as pods see it, e.g. the gateway of kind's or k3d's Docker network)", u.Host)
	}
	return host, err
}

func (t *Theirs) push(ctx context.Context, ref string, img v1.Image) (string, error) {
	there := strings.TrimSuffix(t.Registry, "/") + "/" + ref[strings.LastIndex(ref, "/")+1:]
	tag, err := t.tag(there)
	if err != nil {
		return "", fmt.Errorf("DEMO_REGISTRY=%s: %w (fix: HOST[:PORT][/PATH], without https://)", t.Registry, err)
	}
	if err := remote.Write(tag, img, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return "", fmt.Errorf("push %s: %w (fix: DEMO_REGISTRY has to take pushes from this machine; `docker login` where it wants credentials)", there, err)
	}
	return there, nil
}

// tag parses an image's name. A registry that is named by an address, as those beside test clusters
// are, may use plain HTTP; HTTPS is tried first.
func (t *Theirs) tag(ref string) (name.Tag, error) {
	tag, err := name.NewTag(ref, name.StrictValidation)
	if err != nil {
		return tag, err
	}
	host, _, err := net.SplitHostPort(tag.RegistryStr())
	if err != nil {
		host = tag.RegistryStr()
	}
	if net.ParseIP(strings.Trim(host, "[]")) != nil {
		return name.NewTag(ref, name.StrictValidation, name.Insecure)
	}
	return tag, nil
}
