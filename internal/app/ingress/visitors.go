package ingress

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/appcache"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/gateway"
	"github.com/pipeops/pipeops-vm-agent/internal/htpasswd"
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
		r.Secret = v.BasicAuthSecret
	}
	visitors, unmet := t.visitorsOf(ctx, r.App.Namespace, v, unmet)
	if unmet != "" {
		r.Ready, r.Reason, r.Addresses = false, unmet, nil
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
	_, unmet = t.visitorsOf(ctx, a.Namespace, v, "")
	if v.BasicAuthSecret == "" {
		return unmet, 0
	}
	return unmet, lookAtPasswords
}

// visitorsOf reads whom to let in, or returns why that is not known.
func (t *Router) visitorsOf(ctx context.Context, namespace string, v *runnerapi.Visitors, unmet string) (out gateway.Visitors, why string) {
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
	if v.BasicAuthSecret == "" {
		return out, ""
	}
	out.Users, why = t.passwords.get(ctx, t, runnerapi.Key{Namespace: namespace, Name: v.BasicAuthSecret})
	return out, why
}

const (
	// lookAtPasswords is how long a file of users counts as current. Nothing reports changes of a
	// Secret but a write through this replica.
	lookAtPasswords = time.Minute
	// readAgain is how soon a Secret is read again that could not be read.
	readAgain     = 5 * time.Second
	secretTimeout = 5 * time.Second
	// maxPasswordFiles bounds how many are remembered.
	maxPasswordFiles = 2000
)

// passwordKeys are the keys of a Secret that may have the file: ingress-nginx' and F5's.
var passwordKeys = []string{"auth", "htpasswd"}

// passwords are the files of users of Secrets, as they were read last.
type passwords struct {
	mu    sync.Mutex
	known map[runnerapi.Key]passwordFile
}

type passwordFile struct {
	file  *htpasswd.File // nil if unmet is set
	sum   [sha256.Size]byte
	unmet string
	until time.Time
}

// get returns the file of a Secret, or why there is none. While the Secret cannot be read, the file
// that was read before counts.
func (p *passwords) get(ctx context.Context, t *Router, key runnerapi.Key) (*htpasswd.File, string) {
	p.mu.Lock()
	had, known := p.known[key]
	p.mu.Unlock()
	now := t.now()
	if known && now.Before(had.until) {
		return had.file, had.unmet
	}
	got, err := t.readPasswords(ctx, key, had)
	got.until = now.Add(lookAtPasswords)
	if err != nil {
		t.log.Warn().Err(err).Msg("failed to read the users of a route; retrying")
		got.until = now.Add(readAgain)
		if !known {
			got.unmet = "the Secret " + key.Name + " cannot be read"
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known == nil || len(p.known) >= maxPasswordFiles {
		p.known = map[runnerapi.Key]passwordFile{}
	}
	p.known[key] = got
	return got.file, got.unmet
}

func (p *passwords) forget(key runnerapi.Key) (known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	had, known := p.known[key]
	had.until = time.Time{}
	if known {
		p.known[key] = had
	}
	return known
}

// readPasswords reads the file of a Secret. One that has not changed is the same as before, so that
// its users stay signed in.
func (t *Router) readPasswords(ctx context.Context, key runnerapi.Key, had passwordFile) (passwordFile, error) {
	ctx, cancel := context.WithTimeout(ctx, secretTimeout)
	defer cancel()
	var secret corev1.Secret
	err := t.core.Get().Namespace(key.Namespace).Resource("secrets").Name(key.Name).Do(ctx).Into(&secret)
	if apierrors.IsNotFound(err) {
		return passwordFile{unmet: "there is no Secret " + key.Name + ", which has the users"}, nil
	}
	if err != nil {
		return had, fmt.Errorf("read secret %s: %w", key, err)
	}
	for _, name := range passwordKeys {
		data, there := secret.Data[name]
		if !there {
			continue
		}
		sum := sha256.Sum256(data)
		if had.file != nil && had.sum == sum {
			return had, nil
		}
		file, err := htpasswd.Parse(data)
		if err != nil {
			return passwordFile{unmet: "key " + name + " of the Secret " + key.Name + ": " + err.Error()}, nil
		}
		return passwordFile{file: file, sum: sum}, nil
	}
	return passwordFile{unmet: "the Secret " + key.Name + " has no key auth; give it a file that htpasswd wrote"}, nil
}

// SecretChanged has routes, and the status of their Apps, follow a Secret that was written through
// this replica.
func (t *Router) SecretChanged(ctx context.Context, key runnerapi.Key) {
	if !t.passwords.forget(key) {
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
		if v, _ := demandsOf(a); v != nil && v.BasicAuthSecret == key.Name {
			t.store.Resync(ctx, a.Key())
		}
	}
}
