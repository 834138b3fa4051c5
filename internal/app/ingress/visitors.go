package ingress

import (
	"context"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/appcache"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/gateway"
	"github.com/pipeops/pipeops-vm-agent/internal/limit"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// demand has a route let in the visitors that its App or its annotations name. If the agent cannot
// keep to that, the route refuses all visitors.
func (t *Router) demand(ctx context.Context, r *Route, v *runnerapi.Visitors, unmet string) {
	if v == nil && unmet == "" {
		return
	}
	r.Endpoint = "" // the cluster's load balancer would let in everyone
	if v != nil {
		r.Secrets = v.Secrets()
	}
	visitors, unmet := t.visitorsOf(ctx, r.App, v, unmet)
	if unmet != "" {
		r.Ready, r.Reason, r.Addresses, r.Backends, r.Filters = false, unmet, nil, nil, nil
		return
	}
	r.Visitors = visitors
}

// demandsOf returns whom an App with an ingress lets in, or why the gateway cannot keep to it.
func demandsOf(a *v1alpha1.App) (v *runnerapi.Visitors, unmet string) {
	if v := a.Spec.Ingress.Visitors; v != nil {
		return v, ""
	}
	wants := runnerapi.ReadRouteAnnotations(a.Spec.Ingress.Annotations)
	return wants.Visitors, wants.Unmet
}

// unmet returns why the gateway refuses all visitors of an App with an ingress, and when to look
// again.
func (t *Router) unmet(ctx context.Context, a *v1alpha1.App) (string, time.Duration) {
	v, unmet := demandsOf(a)
	if v == nil || unmet != "" {
		return unmet, 0
	}
	_, unmet = t.visitorsOf(ctx, a.Key(), v, "")
	if len(v.Secrets()) == 0 && v.SignIn == nil {
		return unmet, 0
	}
	return unmet, lookAtSecrets
}

// visitorsOf reads whom to let in, or returns why that is not known.
func (t *Router) visitorsOf(ctx context.Context, app runnerapi.Key, v *runnerapi.Visitors, unmet string) (out gateway.Visitors, why string) {
	if unmet != "" {
		return out, unmet
	}
	out.PerSecond, out.MaxBodyBytes = int(v.RequestsPerSecond), v.MaxBodyBytes
	for _, text := range v.AllowFrom {
		n, err := limit.ParseNetwork(text)
		if err != nil {
			return out, "ingress.visitors.allowFrom: " + err.Error()
		}
		out.AllowFrom = append(out.AllowFrom, n)
	}
	if v.BasicAuthSecret != "" {
		out.Users, why = t.passwords.get(ctx, t, runnerapi.Key{Namespace: app.Namespace, Name: v.BasicAuthSecret})
	}
	if why == "" && (v.SignIn != nil || v.ServiceTokensSecret != "") {
		out.SignIn, why = t.signInOf(ctx, app, v)
	}
	return out, why
}

// SecretChanged has routes, and the status of their Apps, follow a Secret that was written through
// this replica.
func (t *Router) SecretChanged(ctx context.Context, key runnerapi.Key) {
	known := [...]bool{t.passwords.forget(key), t.providers.forget(key), t.tokens.forget(key)}
	if !slices.Contains(known[:], true) {
		return
	}
	t.routed()
	if !t.leads() {
		return // the next look of the leader is in a minute
	}
	var list v1alpha1.List
	if err := t.store.Cached.List(ctx, &list, appcache.Untouched, client.InNamespace(key.Namespace)); err != nil {
		return // likewise
	}
	for i := range list.Items {
		a := &list.Items[i]
		if a.Spec.Ingress == nil {
			continue
		}
		if v, _ := demandsOf(a); slices.Contains(v.Secrets(), key.Name) {
			t.store.Resync(ctx, a.Key())
		}
	}
}
