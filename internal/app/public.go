package app

import (
	"context"
	"fmt"
	"maps"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	crevent "sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// PublicHost is what the control plane's gateway does with a host.
type PublicHost struct {
	Served bool
	Reason string // why it is not served, and what to do
}

// SetPublic sets which hosts the gateway serves. The status of each App follows that has a host
// which has changed. Only the leader calls it.
func (e *Engine) SetPublic(ctx context.Context, hosts map[string]PublicHost) error {
	var had map[string]PublicHost
	if known := e.public.Swap(&hosts); known != nil {
		had = *known
	}
	if maps.Equal(had, hosts) {
		return nil
	}
	var ingresses networkingv1.IngressList
	if err := e.cached.List(ctx, &ingresses, untouched); err != nil {
		return fmt.Errorf("list Ingresses: %w", err)
	}
	for i := range ingresses.Items {
		in := &ingresses.Items[i]
		owner := metav1.GetControllerOfNoCopy(in)
		if owner == nil || owner.Kind != Kind || !hasChanged(in, had, hosts) {
			continue
		}
		select {
		case e.leadership.resync <- crevent.TypedGenericEvent[*App]{Object: &App{ObjectMeta: metav1.ObjectMeta{Namespace: in.Namespace, Name: owner.Name}}}:
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

func hasChanged(in *networkingv1.Ingress, had, has map[string]PublicHost) bool {
	for _, rule := range in.Spec.Rules {
		if had[rule.Host] != has[rule.Host] {
			return true
		}
	}
	return false
}

// throughGateway returns the URLs at which the gateway serves an App, and the condition that follows
// if no ingress controller serves the App; nil if the gateway knows none of its hosts.
func (e *Engine) throughGateway(a *App) (urls []string, condition *runnerapi.Condition) {
	known := e.public.Load()
	if known == nil || a.Spec.Ingress == nil {
		return nil, nil
	}
	ready := runnerapi.ConditionIngressReady
	for _, h := range a.Spec.Ingress.Hosts {
		host, ok := (*known)[h.Host]
		switch {
		case !ok:
		case host.Served:
			urls = append(urls, "https://"+h.Host+prefixOf(h))
		case condition == nil:
			condition = ready.False(runnerapi.ReasonNoAddress, "the gateway does not serve "+h.Host, host.Reason)
		}
	}
	if condition == nil && len(urls) == len(a.Spec.Ingress.Hosts) {
		condition = ready.True(runnerapi.ReasonServed)
	}
	return urls, condition
}
