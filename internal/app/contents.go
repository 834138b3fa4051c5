package app

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/managed"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Contents reports on Secrets and ConfigMaps without their values.
type Contents interface {
	// ContentDigest changes exactly when the content of the object does. It is empty if there is no
	// such object.
	ContentDigest(ctx context.Context, kind runnerapi.RestartTrigger, key runnerapi.Key) (string, error)
}

// lookAgain is how long a read content counts as current. Writes through the agent take effect at
// once; others' writes are noticed when the App is reconciled after this time. There is no watch:
// Secrets must not be in the agent's memory, nor the right to read all of them in its account.
const lookAgain = time.Minute

// lookedAt is when the contents that an App uses were last read, by App.
type lookedAt struct {
	mu sync.Mutex
	at map[types.NamespacedName]look
}

type look struct {
	time       time.Time
	generation int64
}

// due reports whether it is time to look, and notes that it is done now.
func (l *lookedAt) due(name types.NamespacedName, generation int64, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	last, seen := l.at[name]
	if seen && last.generation == generation && now.Sub(last.time) < lookAgain {
		return false
	}
	if l.at == nil {
		l.at = map[types.NamespacedName]look{}
	}
	l.at[name] = look{time: now, generation: generation}
	return true
}

func (l *lookedAt) forget(name types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.at, name)
}

// ContentChanged restarts the Apps that use an object and asked for restarts. It is called after
// each write through the agent. A write that changed nothing restarts nothing, so it may be
// repeated after a failure.
func (e *Engine) ContentChanged(ctx context.Context, kind runnerapi.RestartTrigger, key runnerapi.Key) error {
	var list List
	if err := e.cached.List(ctx, &list, client.InNamespace(key.Namespace), untouched); err != nil {
		return kubeproblem.From(err, "looking for the Apps that use "+key.Name)
	}
	for i := range list.Items {
		a := &list.Items[i]
		if !slices.Contains(uses(a), reference{kind, key.Name}) || !a.DeletionTimestamp.IsZero() {
			continue
		}
		err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			fresh, err := e.getLive(ctx, a.key())
			if err != nil {
				return client.IgnoreNotFound(err)
			}
			return e.followContents(ctx, fresh, true)
		})
		if err != nil {
			return kubeproblem.From(err, fmt.Sprintf("restarting App %s, which uses %s", a.key(), key.Name))
		}
	}
	return nil
}

// followContents records on the App what its Secrets and ConfigMaps hold now. The record is part of
// the pod template, so that Kubernetes restarts the App by a rolling update. While one of them is
// missing the App runs on unchanged: a deleted Secret is no reason to restart running pods.
func (e *Engine) followContents(ctx context.Context, a *App, now bool) error {
	refs := uses(a)
	if len(refs) == 0 || e.cfg.Contents == nil {
		return nil
	}
	if due := e.contents.due(client.ObjectKeyFromObject(a), a.Generation, e.now()); !due && !now {
		return nil
	}
	digest, err := e.digestOfContents(ctx, a.Namespace, refs)
	if err != nil {
		e.contents.forget(client.ObjectKeyFromObject(a))
		return fmt.Errorf("look at what App %s uses: %w", a.key(), err)
	}
	if digest == "" || digest == a.Annotations[managed.Contents] {
		return nil
	}
	before := a.DeepCopy()
	if a.Annotations == nil {
		a.Annotations = map[string]string{}
	}
	a.Annotations[managed.Contents] = digest
	return e.cached.Patch(ctx, a, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}),
		client.FieldOwner(managed.FieldManager))
}

// digestOfContents returns an empty string if an object is missing.
func (e *Engine) digestOfContents(ctx context.Context, namespace string, refs []reference) (string, error) {
	sum := sha256.New()
	for _, ref := range refs {
		digest, err := e.cfg.Contents.ContentDigest(ctx, ref.kind, runnerapi.Key{Namespace: namespace, Name: ref.name})
		if err != nil || digest == "" {
			return "", err
		}
		_, _ = fmt.Fprintf(sum, "%s/%s=%s\n", ref.kind, ref.name, digest)
	}
	return hex.EncodeToString(sum.Sum(nil)[:16]), nil
}

// reference is a Secret or a ConfigMap that an App uses.
type reference struct {
	kind runnerapi.RestartTrigger
	name string
}

// uses returns the objects whose change restarts the App, in a fixed order. They are read off the
// pods that the App becomes, so no part of its spec can be forgotten here. Secrets to pull images
// with are not among them: a pod that runs has its image.
func uses(a *App) []reference {
	if len(a.Spec.RestartOn) == 0 {
		return nil
	}
	refs := referencesOf(podTemplate(a).Spec)
	refs = slices.DeleteFunc(refs, func(r reference) bool { return r.name == "" || !slices.Contains(a.Spec.RestartOn, r.kind) })
	slices.SortFunc(refs, func(x, y reference) int {
		return cmp.Or(strings.Compare(string(x.kind), string(y.kind)), strings.Compare(x.name, y.name))
	})
	return slices.Compact(refs)
}

func referencesOf(pod corev1.PodSpec) []reference {
	var refs []reference
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		refs = append(refs, ofContainer(c)...)
	}
	for _, v := range pod.Volumes {
		if v.Secret != nil {
			refs = append(refs, reference{runnerapi.RestartOnSecrets, v.Secret.SecretName})
		}
		if v.ConfigMap != nil {
			refs = append(refs, reference{runnerapi.RestartOnConfigMaps, v.ConfigMap.Name})
		}
		if v.Projected == nil {
			continue
		}
		for _, s := range v.Projected.Sources {
			if s.Secret != nil {
				refs = append(refs, reference{runnerapi.RestartOnSecrets, s.Secret.Name})
			}
			if s.ConfigMap != nil {
				refs = append(refs, reference{runnerapi.RestartOnConfigMaps, s.ConfigMap.Name})
			}
		}
	}
	return refs
}

func ofContainer(c corev1.Container) []reference {
	var refs []reference
	for _, from := range c.EnvFrom {
		if from.SecretRef != nil {
			refs = append(refs, reference{runnerapi.RestartOnSecrets, from.SecretRef.Name})
		}
		if from.ConfigMapRef != nil {
			refs = append(refs, reference{runnerapi.RestartOnConfigMaps, from.ConfigMapRef.Name})
		}
	}
	for _, v := range c.Env {
		if v.ValueFrom == nil {
			continue
		}
		if ref := v.ValueFrom.SecretKeyRef; ref != nil {
			refs = append(refs, reference{runnerapi.RestartOnSecrets, ref.Name})
		}
		if ref := v.ValueFrom.ConfigMapKeyRef; ref != nil {
			refs = append(refs, reference{runnerapi.RestartOnConfigMaps, ref.Name})
		}
	}
	return refs
}
