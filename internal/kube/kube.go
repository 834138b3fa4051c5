// Package kube carries out, for a Runner and for the agent itself, everything in Kubernetes beside
// Apps: Secrets, config maps, namespaces, facts about the cluster, and the Secret that holds the
// agent's identity.
//
// It asks the API server each time and caches nothing, and in particular no Secret. Package
// internal/app handles Apps.
package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/rs/zerolog"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/admission"
	"github.com/pipeops/pipeops-vm-agent/internal/kubeclient"
	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
)

// Options describe where the agent runs.
type Options struct {
	Namespace string // the agent's own
	// Namespaces are the only ones that the agent may see and manage; empty for all.
	Namespaces     []string
	ServiceAccount string // the agent's own; pipeops-agent when empty
	Log            zerolog.Logger
}

// Client reads facts about the cluster, and what is the agent's own. What Runners call has types of
// its own, one for each noun.
type Client struct {
	opts    Options
	client  client.Client
	rest    rest.Interface
	digests *digestKey
	races   kubeproblem.Races
}

var _ backend.Cluster = Cluster{}

// Passing reports whether a retry may help without any change.
func Passing(err error) bool {
	p := &problem.Error{}
	return errors.As(kubeproblem.From(err, "talking to the cluster"), &p) && p.Passing()
}

// Kinds that are read without their types.
var (
	appKind         = schema.GroupVersionKind{Group: "pipeops.io", Version: "v1alpha1", Kind: "App"}
	nodeMetricsKind = schema.GroupVersionKind{Group: "metrics.k8s.io", Version: "v1beta1", Kind: "NodeMetrics"}
)

// New returns a Client. It makes no requests yet.
func New(given *rest.Config, opts Options) (*Client, error) {
	opts.ServiceAccount = cmp.Or(opts.ServiceAccount, objectmeta.FieldManager)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme, rbacv1.AddToScheme, networkingv1.AddToScheme, policyv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	rc, hc, err := kubeclient.New(given)
	if err != nil {
		return nil, err
	}
	c, err := client.New(rc, client.Options{Scheme: scheme, Mapper: newMapper(), HTTPClient: hc})
	if err != nil {
		return nil, fmt.Errorf("prepare the Kubernetes client: %w", err)
	}
	core, err := corev1client.NewForConfigAndClient(rc, hc)
	if err != nil {
		return nil, fmt.Errorf("prepare the Kubernetes client: %w", err)
	}
	return &Client{opts: opts, client: c, rest: core.RESTClient(), digests: &digestKey{client: c, namespace: opts.Namespace}}, nil
}

// newMapper returns a table of the few kinds that the agent needs, which avoids asking the API
// server for all that it serves.
func newMapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	core := corev1.SchemeGroupVersion
	for _, kind := range []string{"Secret", "ConfigMap", "Pod", "Event", "ResourceQuota", "LimitRange"} {
		m.Add(core.WithKind(kind), meta.RESTScopeNamespace)
	}
	m.Add(networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy"), meta.RESTScopeNamespace)
	m.Add(core.WithKind("Namespace"), meta.RESTScopeRoot)
	m.Add(core.WithKind("Node"), meta.RESTScopeRoot)
	m.Add(rbacv1.SchemeGroupVersion.WithKind("RoleBinding"), meta.RESTScopeNamespace)
	m.Add(appsv1.SchemeGroupVersion.WithKind("ControllerRevision"), meta.RESTScopeNamespace)
	m.Add(appsv1.SchemeGroupVersion.WithKind("Deployment"), meta.RESTScopeNamespace)
	m.Add(appKind, meta.RESTScopeNamespace)
	m.AddSpecific(nodeMetricsKind, nodeMetricsKind.GroupVersion().WithResource("nodes"),
		nodeMetricsKind.GroupVersion().WithResource("node"), meta.RESTScopeRoot)
	return m
}

// scope returns which namespaces may be managed.
func (k *Client) scope() objectmeta.Scope {
	return objectmeta.Scope{Agent: k.opts.Namespace, Only: k.opts.Namespaces}
}

// admit refuses a namespace that is not managed.
func (k *Client) admit(ctx context.Context, namespace string) error {
	_, err := admission.Namespace(ctx, k.scope(), namespace, func(ctx context.Context, name string) (*metav1.PartialObjectMetadata, error) {
		ns := &metav1.PartialObjectMetadata{}
		ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
		return ns, k.client.Get(ctx, client.ObjectKey{Name: name}, ns)
	})
	return err
}

// everywhere returns what to list for everything that the agent may see.
func (k *Client) everywhere() []client.ListOption {
	if len(k.opts.Namespaces) == 0 {
		return []client.ListOption{client.InNamespace(metav1.NamespaceAll)}
	}
	var where []client.ListOption
	for _, name := range k.opts.Namespaces {
		where = append(where, client.InNamespace(name))
	}
	return where
}

// writer returns the client for a write, which changes nothing if it is a dry run.
func (k *Client) writer(opts runnerapi.WriteOptions) client.Client {
	if opts.DryRun {
		return client.NewDryRunClient(k.client)
	}
	return k.client
}

// sign records on an object who changed it.
func sign(o metav1.Object, caller runnerapi.Caller) {
	notes := o.GetAnnotations()
	if notes == nil {
		notes = map[string]string{}
	}
	notes[objectmeta.ChangedBy], notes[objectmeta.RequestID] = caller.Runner, caller.RequestID
	o.SetAnnotations(notes)
}
