package components

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/kubernetes"

	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
)

// nameLabel is the label that charts give their objects:
// https://kubernetes.io/docs/concepts/overview/working-with-objects/common-labels/
const nameLabel = "app.kubernetes.io/name"

// agentBinding is the ClusterRoleBinding of the agent.
const agentBinding = "pipeops-agent"

// Cluster is what components are decided by.
type Cluster struct {
	APIGroups      map[string]bool
	IngressClasses []string
	// DefaultStorageClasses are those that volumes come from that name none.
	DefaultStorageClasses []string
	// Services are those of known components, as NAMESPACE/NAME by the value of their name label.
	Services map[string][]string
	// AgentNamespace is the namespace of the agent.
	AgentNamespace string
	// Memory is what all nodes together give to pods, in bytes.
	Memory int64
	// Installed are the releases that this package made.
	Installed map[string][]Installed

	managed map[string]bool // namespaces in which Runners may make objects
}

// Look reads what a cluster has.
func Look(ctx context.Context, client kubernetes.Interface) (Cluster, error) {
	c := Cluster{APIGroups: map[string]bool{}, Services: map[string][]string{}, AgentNamespace: namespaceSystem}
	for _, step := range []struct {
		what string
		do   func(context.Context, kubernetes.Interface) error
	}{
		{"listing namespaces", c.lookAtNamespaces},
		{"reading the cluster's APIs", c.lookAtAPIs},
		{"listing resource definitions", c.lookAtDefinitions},
		{"reading the API of metrics", c.lookAtMetricsAPI},
		{"listing IngressClasses", c.lookAtIngressClasses},
		{"listing what k3s brings", c.lookAtK3s},
		{"listing StorageClasses", c.lookAtStorageClasses},
		{"listing Services", c.lookAtServices},
		{"listing nodes", c.lookAtNodes},
		{"reading the binding of the agent's rights", c.lookAtAgent},
		{"listing Helm releases", c.lookAtReleases},
	} {
		if err := step.do(ctx, client); err != nil {
			return Cluster{}, translated(err, step.what)
		}
	}
	return c, nil
}

func (c *Cluster) lookAtAPIs(_ context.Context, client kubernetes.Interface) error {
	groups, err := client.Discovery().ServerGroups()
	if err != nil {
		return err
	}
	for _, g := range groups.Groups {
		c.APIGroups[g.Name] = true
	}
	return nil
}

func (c *Cluster) lookAtNamespaces(ctx context.Context, client kubernetes.Interface) error {
	managed := metav1.ListOptions{LabelSelector: labels.SelectorFromSet(objectmeta.Labels()).String()}
	list, err := client.CoreV1().Namespaces().List(ctx, managed)
	if err != nil {
		return err
	}
	c.managed = map[string]bool{}
	for i := range list.Items {
		c.managed[list.Items[i].Name] = true
	}
	return nil
}

// byRunner reports whether a Runner may have made an object. Such an object proves nothing.
func (c *Cluster) byRunner(o metav1.Object) bool {
	return c.managed[o.GetNamespace()] || c.managed[o.GetAnnotations()[annotationNamespace]] || o.GetAnnotations()[objectmeta.SetOf] != ""
}

// lookAtDefinitions drops APIs of which the cluster has only resource definitions that a component
// left behind, or that a Runner made.
func (c *Cluster) lookAtDefinitions(ctx context.Context, client kubernetes.Interface) error {
	data, err := client.Discovery().RESTClient().Get().AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions").
		SetHeader("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1").Do(ctx).Raw()
	if err != nil {
		return err
	}
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal(data, &list); err != nil {
		return fmt.Errorf("read the resource definitions: %w", err)
	}
	counts := map[string]bool{} // of each group with definitions: whether one is another's
	for i := range list.Items {
		d := &list.Items[i]
		_, group, _ := strings.Cut(d.Name, ".")
		left, err := c.isLeftover(ctx, client, d)
		if err != nil {
			return err
		}
		counts[group] = counts[group] || !left && !c.byRunner(d)
	}
	for group, somebodys := range counts {
		if !somebodys {
			delete(c.APIGroups, group)
		}
	}
	return nil
}

// isLeftover reports whether a definition stayed behind when a component was removed: an Installer
// made it, or it is of a component's release that does not exist any more.
func (c *Cluster) isLeftover(ctx context.Context, client kubernetes.Interface, d *metav1.PartialObjectMetadata) (bool, error) {
	if isOurs(d) {
		return true, nil
	}
	of := releaseOf(d)
	ours := slices.ContainsFunc(table, func(o Component) bool {
		return o.Namespace == of.namespace && slices.ContainsFunc(o.Charts, func(chart Chart) bool { return chart.Name == of.name })
	})
	if !ours {
		return false, nil
	}
	records, err := client.CoreV1().Secrets(of.namespace).List(ctx, metav1.ListOptions{LabelSelector: labelOwner + "=helm," + labelRelease + "=" + of.name, Limit: 1})
	return err == nil && len(records.Items) == 0, err
}

// lookAtMetricsAPI finds the API also while what serves it has not started: discovery leaves it out
// until then.
func (c *Cluster) lookAtMetricsAPI(ctx context.Context, client kubernetes.Interface) error {
	err := client.Discovery().RESTClient().Get().AbsPath("/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io").Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		c.APIGroups["metrics.k8s.io"] = true
	}
	return err
}

// lookAtK3s finds k3s' Traefik before its chart is installed, which takes k3s a minute.
func (c *Cluster) lookAtK3s(ctx context.Context, client kubernetes.Interface) error {
	if !c.APIGroups["helm.cattle.io"] || len(c.IngressClasses) > 0 {
		return nil
	}
	err := client.Discovery().RESTClient().Get().AbsPath("/apis/helm.cattle.io/v1/namespaces/kube-system/helmcharts/traefik").Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		c.IngressClasses = append(c.IngressClasses, "traefik, which k3s brings")
	}
	return err
}

func (c *Cluster) lookAtIngressClasses(ctx context.Context, client kubernetes.Interface) error {
	list, err := client.NetworkingV1().IngressClasses().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range list.Items {
		if !c.byRunner(&list.Items[i]) {
			c.IngressClasses = append(c.IngressClasses, list.Items[i].Name)
		}
	}
	return nil
}

const defaultStorageClass = "storageclass.kubernetes.io/is-default-class"

func (c *Cluster) lookAtStorageClasses(ctx context.Context, client kubernetes.Interface) error {
	list, err := client.StorageV1().StorageClasses().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range list.Items {
		if class := &list.Items[i]; class.Annotations[defaultStorageClass] == "true" && !c.byRunner(class) {
			c.DefaultStorageClasses = append(c.DefaultStorageClasses, class.Name)
		}
	}
	return nil
}

func (c *Cluster) lookAtServices(ctx context.Context, client kubernetes.Interface) error {
	known, err := labels.NewRequirement(nameLabel, selection.In, []string{"prometheus", "loki", "grafana", "opencost"})
	if err != nil {
		return err
	}
	list, err := client.CoreV1().Services("").List(ctx, metav1.ListOptions{LabelSelector: known.String()})
	if err != nil {
		return err
	}
	for i := range list.Items {
		s := &list.Items[i]
		if c.byRunner(s) {
			continue
		}
		name := s.Labels[nameLabel]
		c.Services[name] = append(c.Services[name], s.Namespace+"/"+s.Name)
	}
	return nil
}

// lookAtAgent finds the agent's namespace by its rights, which no one in a namespace can forge.
func (c *Cluster) lookAtAgent(ctx context.Context, client kubernetes.Interface) error {
	binding, err := client.RbacV1().ClusterRoleBindings().Get(ctx, agentBinding, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil && len(binding.Subjects) == 1 && binding.Subjects[0].Namespace != "" {
		c.AgentNamespace = binding.Subjects[0].Namespace
	}
	return err
}

func (c *Cluster) lookAtNodes(ctx context.Context, client kubernetes.Interface) error {
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range list.Items {
		c.Memory += list.Items[i].Status.Allocatable.Memory().Value()
	}
	return nil
}

// Installed is a release of a component that this package made.
type Installed struct {
	Namespace, Name string
	Revision        int
	Status          string // as Helm says it: deployed, failed, pending-install and so on
	// Version is the chart's.
	Version string
	// Digest is of the chart and the values: a plan with the same one changes nothing.
	Digest string
	// Changed is when the newest revision was made.
	Changed time.Time
}

// The labels of Helm's record of a release, and those that this package adds.
const (
	labelOwner     = "owner"
	labelRelease   = "name"
	labelStatus    = "status"
	labelRevision  = "version"
	labelComponent = "pipeops.io/component"
	labelChart     = "pipeops.io/chart-version"
	labelDigest    = "pipeops.io/digest"
)

func (c *Cluster) lookAtReleases(ctx context.Context, client kubernetes.Interface) error {
	c.Installed = map[string][]Installed{}
	for _, namespace := range namespacesOf(table) {
		list, err := client.CoreV1().Secrets(namespace).List(ctx, metav1.ListOptions{LabelSelector: labelOwner + "=helm," + labelComponent})
		if err != nil {
			return err
		}
		for i := range list.Items {
			if err := c.addRelease(namespace, &list.Items[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// addRelease keeps the newest revision of each release.
func (c *Cluster) addRelease(namespace string, record *corev1.Secret) error {
	of := record.Labels
	var revision int
	if _, err := fmt.Sscanf(of[labelRevision], "%d", &revision); err != nil {
		return fmt.Errorf("a Helm release in namespace %s has no version: %w", namespace, err)
	}
	next := Installed{Namespace: namespace, Name: of[labelRelease], Revision: revision, Status: of[labelStatus], Version: of[labelChart], Digest: of[labelDigest]}
	next.Changed = record.CreationTimestamp.Time
	all := c.Installed[of[labelComponent]]
	i := slices.IndexFunc(all, func(r Installed) bool { return r.Name == next.Name })
	switch {
	case i < 0:
		all = append(all, next)
	case all[i].Revision < revision:
		all[i] = next
	}
	c.Installed[of[labelComponent]] = all
	return nil
}

func namespacesOf(all []Component) []string {
	names := make([]string, 0, len(all))
	for _, c := range all {
		names = append(names, c.Namespace)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
