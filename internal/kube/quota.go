package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// boundsName is the name of the ResourceQuota, the LimitRange and the NetworkPolicy that the agent
// maintains in a namespace. Its rights are for this name only: those that the cluster owner has
// made bind the agent too.
const boundsName = objectmeta.FieldManager

// allowedLabel, with the value "allowed", admits a namespace's pods everywhere, for an ingress
// controller that is not among the known ones.
const (
	allowedLabel = "pipeops.io/ingress"
	allowedValue = "allowed"
)

// ingressNamespaces are the usual namespaces of ingress controllers; k3s has its own in
// kube-system.
var ingressNamespaces = []string{
	metav1.NamespaceSystem, "ingress-nginx", "traefik", "haproxy-controller", "projectcontour", "istio-system", "istio-ingress",
	"kong", "envoy-gateway-system", "nginx-gateway", "nginx-ingress", "cilium-gateway",
}

// fromAnnotation records on the NetworkPolicy which namespaces were named beside those that are
// always admitted.
const fromAnnotation = "pipeops.io/allow-from"

// rightsDelay bounds how long the API server may take to see rights that the agent has just
// received.
const rightsDelay = 5 * time.Second

// applyBounds makes the namespace's quota, default limits and network policy match the spec, and
// removes those that it does not name.
func (k Namespaces) applyBounds(ctx context.Context, namespace string, spec runnerapi.NamespaceSpec, wasThere bool, opts runnerapi.WriteOptions) error {
	network := spec.Network
	if network == nil && !wasThere {
		network = &runnerapi.NamespaceNetwork{Mode: runnerapi.NetworkIsolated}
	}
	for _, part := range []struct {
		want client.Object
		is   bool
	}{
		{quotaObject(spec.Quota), spec.Quota != nil},
		{limitsObject(spec.Limits), spec.Limits != nil},
		{k.networkObject(network), network != nil && network.Mode != runnerapi.NetworkOpen},
	} {
		part.want.SetNamespace(namespace)
		part.want.SetName(boundsName)
		if err := k.applyPart(ctx, part.want, part.is, opts); err != nil {
			return err
		}
	}
	return nil
}

func (k Namespaces) applyPart(ctx context.Context, want client.Object, wanted bool, opts runnerapi.WriteOptions) error {
	gvk, err := k.client.GroupVersionKindFor(want)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("%s %s/%s", gvk.Kind, want.GetNamespace(), want.GetName())
	have := &metav1.PartialObjectMetadata{}
	have.SetGroupVersionKind(gvk)
	err = k.readSoon(ctx, client.ObjectKeyFromObject(want), have)
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return kubeproblem.From(err, "reading "+what)
	case err == nil && !objectmeta.IsManaged(have):
		if !wanted {
			return nil
		}
		return problem.Errorf(problem.Conflict, "delete it, or leave that part out of the namespace's spec",
			"%s exists and was not created by the agent", what)
	case wanted:
		return kubeproblem.From(k.applyObject(ctx, want, opts), "writing "+what)
	case err == nil:
		err = k.writer(opts).Delete(ctx, have, client.Preconditions{UID: new(have.UID)})
		return kubeproblem.From(client.IgnoreNotFound(err), "deleting "+what)
	}
	return nil
}

// readSoon waits for rights that were just granted.
func (k Namespaces) readSoon(ctx context.Context, at client.ObjectKey, have client.Object) error {
	var err error
	timeout := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, rightsDelay, true, func(ctx context.Context) (bool, error) {
		err = k.client.Get(ctx, at, have)
		return !apierrors.IsForbidden(err), nil
	})
	if err == nil && timeout != nil {
		return timeout
	}
	return err
}

// applyObject takes back by force what others changed in an object that is known to be the agent's.
func (k Namespaces) applyObject(ctx context.Context, want client.Object, opts runnerapi.WriteOptions) error {
	gvk, err := k.client.GroupVersionKindFor(want)
	if err != nil {
		return err
	}
	want.SetLabels(objectmeta.Labels())
	sign(want, opts.Caller)
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(want)
	if err != nil {
		return fmt.Errorf("encode %s: %w", want.GetName(), err)
	}
	u := &unstructured.Unstructured{Object: tree}
	u.SetGroupVersionKind(gvk)
	unstructured.RemoveNestedField(u.Object, "status")
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	return k.writer(opts).Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(objectmeta.FieldManager), client.ForceOwnership)
}

func quotaObject(q *runnerapi.NamespaceQuota) client.Object {
	o := &corev1.ResourceQuota{Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{}}}
	if q == nil {
		return o
	}
	for name, amount := range map[corev1.ResourceName]string{
		corev1.ResourceRequestsCPU: q.Requests.CPU, corev1.ResourceRequestsMemory: q.Requests.Memory,
		corev1.ResourceLimitsCPU: q.Limits.CPU, corev1.ResourceLimitsMemory: q.Limits.Memory,
		corev1.ResourceRequestsStorage: q.Storage,
	} {
		set(o.Spec.Hard, name, amount)
	}
	if q.Pods != nil {
		o.Spec.Hard[corev1.ResourcePods] = *resource.NewQuantity(int64(*q.Pods), resource.DecimalSI)
	}
	return o
}

func limitsObject(d *runnerapi.NamespaceDefaults) client.Object {
	if d == nil {
		return &corev1.LimitRange{}
	}
	item := corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Default: corev1.ResourceList{}, DefaultRequest: corev1.ResourceList{}}
	set(item.Default, corev1.ResourceCPU, d.Limits.CPU)
	set(item.Default, corev1.ResourceMemory, d.Limits.Memory)
	set(item.DefaultRequest, corev1.ResourceCPU, d.Requests.CPU)
	set(item.DefaultRequest, corev1.ResourceMemory, d.Requests.Memory)
	return &corev1.LimitRange{Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{item}}}
}

// set parses an amount that Validate has accepted.
func set(list corev1.ResourceList, name corev1.ResourceName, amount string) {
	if q, err := resource.ParseQuantity(amount); err == nil && amount != "" {
		list[name] = q
	}
}

// networkObject admits the namespace itself, ingress controllers, the agent and the named
// namespaces. Kubernetes always admits the node, whose probes must pass.
func (k Namespaces) networkObject(n *runnerapi.NamespaceNetwork) client.Object {
	o := &networkingv1.NetworkPolicy{}
	if n == nil {
		return o
	}
	names := append(slices.Clone(ingressNamespaces), k.opts.Namespace)
	names = append(names, n.AllowFrom...)
	slices.Sort(names)
	from := []networkingv1.NetworkPolicyPeer{
		{PodSelector: &metav1.LabelSelector{}},
		{NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
			Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: slices.Compact(names),
		}}}},
		{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{allowedLabel: allowedValue}}},
	}
	o.Annotations = map[string]string{fromAnnotation: strings.Join(n.AllowFrom, ",")}
	o.Spec = networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{},
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		Ingress:     []networkingv1.NetworkPolicyIngressRule{{From: from}},
	}
	return o
}

// readBounds adds to ns what bounds it. If the agent has no rights, as in a terminating namespace,
// it leaves that part out.
func (k Namespaces) readBounds(ctx context.Context, ns *runnerapi.Namespace) error {
	at := client.ObjectKey{Namespace: ns.Name, Name: boundsName}
	quota, limits, policy := &corev1.ResourceQuota{}, &corev1.LimitRange{}, &networkingv1.NetworkPolicy{}
	var errs []error
	absent := false // of the object that was read last
	read := func(o client.Object) bool {
		err := k.client.Get(ctx, at, o)
		absent = apierrors.IsNotFound(err)
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
			errs = append(errs, kubeproblem.From(err, "reading what bounds namespace "+ns.Name))
		}
		return err == nil && objectmeta.IsManaged(o)
	}
	if read(quota) {
		ns.Quota, ns.Used = wireQuota(quota.Spec.Hard), wireQuota(quota.Status.Used)
	}
	if read(limits) && len(limits.Spec.Limits) > 0 {
		item := limits.Spec.Limits[0]
		ns.Limits = &runnerapi.NamespaceDefaults{
			Requests: amounts(item.DefaultRequest, corev1.ResourceCPU, corev1.ResourceMemory),
			Limits:   amounts(item.Default, corev1.ResourceCPU, corev1.ResourceMemory),
		}
	}
	mine := read(policy)
	none := absent
	others, known, err := k.isolatedByOthers(ctx, ns.Name)
	if err != nil {
		errs = append(errs, err)
	}
	ns.NetworkPolicies = others
	switch {
	case mine:
		ns.Network = &runnerapi.NamespaceNetwork{Mode: runnerapi.NetworkIsolated, AllowFrom: namesIn(policy.Annotations[fromAnnotation])}
	case none && known && len(others) == 0:
		ns.Network = &runnerapi.NamespaceNetwork{Mode: runnerapi.NetworkOpen}
	}
	return errors.Join(errs...)
}

// maxPolicies bounds the network policies that are read of a namespace.
const maxPolicies = 100

// isolatedByOthers returns the network policies, other than the agent's own, that restrict access
// to the namespace's pods; known is false if they may not be read.
func (k Namespaces) isolatedByOthers(ctx context.Context, namespace string) (names []string, known bool, err error) {
	var list networkingv1.NetworkPolicyList
	err = k.client.List(ctx, &list, client.InNamespace(namespace), client.Limit(maxPolicies))
	switch {
	case apierrors.IsForbidden(err):
		return nil, false, nil
	case err != nil:
		return nil, false, kubeproblem.From(err, "reading the network policies of namespace "+namespace)
	}
	for i := range list.Items {
		p := &list.Items[i]
		own := p.Name == boundsName && objectmeta.IsManaged(p)
		// Without types, a policy applies to incoming traffic, regardless of its rules.
		if !own && (len(p.Spec.PolicyTypes) == 0 || slices.Contains(p.Spec.PolicyTypes, networkingv1.PolicyTypeIngress)) {
			names = append(names, p.Name)
		}
	}
	return names, list.Continue == "", nil
}

func wireQuota(list corev1.ResourceList) *runnerapi.NamespaceQuota {
	q := &runnerapi.NamespaceQuota{
		Requests: amounts(list, corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory),
		Limits:   amounts(list, corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory),
		Storage:  amount(list, corev1.ResourceRequestsStorage),
	}
	if pods, ok := list[corev1.ResourcePods]; ok {
		q.Pods = new(int32(min(pods.Value(), 1<<30))) //nolint:gosec // bounded
	}
	return q
}

func amounts(list corev1.ResourceList, cpu, memory corev1.ResourceName) runnerapi.ResourceAmounts {
	return runnerapi.ResourceAmounts{CPU: amount(list, cpu), Memory: amount(list, memory)}
}

func amount(list corev1.ResourceList, name corev1.ResourceName) string {
	q, ok := list[name]
	if !ok {
		return ""
	}
	return q.String()
}

func namesIn(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}
