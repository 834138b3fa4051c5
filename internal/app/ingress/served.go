package ingress

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/diagnose"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/app/workload"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const (
	// maxClasses bounds what is read of the cluster's IngressClasses.
	maxClasses = 100
	// No event reports changes of a TLS Secret, so it is read again.
	lookForSecret  = 15 * time.Second
	lookAfterItFor = 10 * time.Minute
)

// Served writes into the status whether the App's Ingress is served, and at which URLs. It returns
// when to look again.
func (t *Router) Served(ctx context.Context, a *v1alpha1.App, s *v1alpha1.Status) (time.Duration, error) {
	if a.Spec.Ingress == nil {
		return 0, nil
	}
	if a.Spec.Ingress.GatewayAlone() && t.public.Load() == nil {
		t.keepPublic(a, s)
		return 0, nil // SetPublic brings the App here again
	}
	if len(workload.ControllerHosts(a)) == 0 {
		public, again := t.reached(ctx, a, s)
		s.Conditions, s.PublicURLs = append(s.Conditions, *public.condition), public.urls
		return again, nil
	}
	in := &networkingv1.Ingress{}
	if err := t.store.Cached.Get(ctx, client.ObjectKeyFromObject(a), in); apierrors.IsNotFound(err) || err == nil && !workload.Owns(a, in) {
		return 0, nil
	} else if err != nil {
		return 0, fmt.Errorf("read the Ingress of App %s: %w", a.Key(), err)
	}
	ev := diagnose.IngressEvidence{Ingress: in, Now: t.now(), Secrets: map[string]corev1.SecretType{}}
	var recheck time.Duration
	for _, entry := range in.Spec.TLS {
		if entry.SecretName == "" { // the controller has its own certificate
			continue
		}
		kind, again, err := t.secretTypes.get(ctx, t, a.Namespace, entry.SecretName)
		if err != nil { // no reason to leave out the rest
			t.log.Warn().Err(err).Msg("the certificate of an App's Ingress is not known yet; retrying")
			again = lookForSecret
		} else {
			ev.Secrets[entry.SecretName] = kind
		}
		recheck = diagnose.Sooner(recheck, again)
	}
	if diagnose.WantsClasses(in) {
		ev.Classes = t.ingressClasses(ctx)
	}
	condition, again := diagnose.Served(ev)
	recheck = diagnose.Sooner(recheck, again)
	public, again := t.reached(ctx, a, s)
	if better(public.condition, condition, a) {
		condition = public.condition
	}
	s.Conditions = append(s.Conditions, *condition)
	if s.PublicURLs = public.urls; len(public.hosts) == 0 && len(in.Status.LoadBalancer.Ingress) > 0 {
		s.PublicURLs = append(s.PublicURLs, workload.PublicURLs(a, diagnose.UnservedHosts(ev))...)
	}
	return diagnose.Sooner(recheck, again), nil
}

// reached returns how the gateway serves an App, and when to look again.
func (t *Router) reached(ctx context.Context, a *v1alpha1.App, s *v1alpha1.Status) (reached, time.Duration) {
	public := t.public.Load().of(a)
	unmet, again := t.unmet(ctx, a)
	if unmet != "" && public.condition != nil && public.condition.Reason != runnerapi.ReasonNotPublic && public.condition.Reason != runnerapi.ReasonNoGateway {
		public = reached{condition: notServedAt("the App", unmet)}
	}
	if len(a.Spec.Ingress.Ports) > 0 && s.ReadyReplicas == 0 && public.condition != nil && public.condition.Holds() { // nothing tries a port as Check does a host
		public.condition = notServedAt("the App's ports", "no pod is ready; wait for one, or look at the App's diagnosis")
	}
	return public, again
}

// better reports whether the gateway's condition says more than the ingress controller's.
func better(gateway, controller *runnerapi.Condition, a *v1alpha1.App) bool {
	switch {
	case gateway == nil:
		return false
	case controller.Holds():
		return a.Spec.Ingress.GatewayAlone() && !gateway.Holds() // a controller does not serve that host
	}
	return gateway.Holds() || missesController(controller) // the gateway needs neither a controller nor a Secret
}

// keepPublic keeps what the status said about public hosts.
func (t *Router) keepPublic(a *v1alpha1.App, s *v1alpha1.Status) {
	s.PublicURLs = a.Status.PublicURLs
	for _, c := range a.Status.Conditions {
		if c.Type == runnerapi.ConditionIngressReady {
			s.Conditions = append(s.Conditions, c)
		}
	}
}

// missesController reports whether a condition is about the cluster's ingress controller.
func missesController(c *runnerapi.Condition) bool {
	return c.Reason == runnerapi.ReasonNoAddress || c.Reason == runnerapi.ReasonNoIngressClass
}

// ingressClasses returns the ingress classes of the cluster; nil if they are unknown.
func (t *Router) ingressClasses(ctx context.Context) []networkingv1.IngressClass {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var list networkingv1.IngressClassList
	if err := t.store.Live.List(ctx, &list, client.Limit(maxClasses)); err != nil {
		t.log.Warn().Err(err).Msg("failed to read the cluster's ingress classes")
		return nil
	}
	return append([]networkingv1.IngressClass{}, list.Items...)
}

// secretTypes are the types of TLS Secrets, as they were read last.
type secretTypes struct {
	mu    sync.Mutex
	known map[runnerapi.Key]secretType
}

type secretType struct {
	kind  corev1.SecretType
	until time.Time
}

// maxSecretTypes bounds how many are remembered.
const maxSecretTypes = 2000

// get returns the type of a Secret, empty if there is none, and when to look again.
func (s *secretTypes) get(ctx context.Context, t *Router, namespace, name string) (corev1.SecretType, time.Duration, error) {
	now, key := t.now(), runnerapi.Key{Namespace: namespace, Name: name}
	s.mu.Lock()
	have, ok := s.known[key]
	s.mu.Unlock()
	if ok && now.Before(have.until) {
		return have.kind, have.until.Sub(now), nil
	}
	kind, err := t.typeOfSecret(ctx, namespace, name)
	if err != nil {
		return "", 0, err
	}
	again := lookForSecret
	if kind == corev1.SecretTypeTLS {
		again = lookAfterItFor
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil || len(s.known) >= maxSecretTypes {
		s.known = map[runnerapi.Key]secretType{}
	}
	s.known[key] = secretType{kind, now.Add(again)}
	return kind, again, nil
}

// typeOfSecret asks for what kubectl prints of a Secret: its type, not what it holds.
func (t *Router) typeOfSecret(ctx context.Context, namespace, name string) (corev1.SecretType, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	raw, err := t.core.Get().Namespace(namespace).Resource("secrets").Name(name).
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Param("includeObject", string(metav1.IncludeNone)).
		Do(ctx).Raw()
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("look for secret %s/%s: %w", namespace, name, err)
	}
	var table metav1.Table
	if err := json.Unmarshal(raw, &table); err != nil {
		return "", fmt.Errorf("read the type of secret %s/%s: %w", namespace, name, err)
	}
	column := slices.IndexFunc(table.ColumnDefinitions, func(c metav1.TableColumnDefinition) bool { return c.Name == "Type" })
	if column < 0 || len(table.Rows) == 0 || column >= len(table.Rows[0].Cells) {
		return "", fmt.Errorf("read the type of secret %s/%s: the API server does not name it", namespace, name)
	}
	kind, _ := table.Rows[0].Cells[column].(string)
	return corev1.SecretType(kind), nil
}
