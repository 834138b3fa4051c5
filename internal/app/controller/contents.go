package controller

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/appcache"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/app/workload"
	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Contents reports on Secrets and ConfigMaps without their values.
type Contents interface {
	// ContentDigest changes exactly when the content of the object does. It is empty if there is no
	// such object.
	ContentDigest(ctx context.Context, kind runnerapi.RestartTrigger, key runnerapi.Key) (string, error)
}

// lookAgain is how long a read content counts as current. Writes through the agent take effect at
// once; those of others, such as an operator that rotates a password, after this time. There is no
// watch: Secrets must not be in the agent's memory, nor the right to read all of them in its
// account.
const lookAgain = time.Minute

// contents restarts Apps whose Secrets and ConfigMaps changed.
type contents struct {
	store  *appcache.Store
	source Contents
	now    func() time.Time

	mu sync.Mutex
	at map[types.NamespacedName]look // when they were last read, by App
}

type look struct {
	time       time.Time
	generation int64
}

// due reports whether it is time to look, and notes that it is done now.
func (c *contents) due(name types.NamespacedName, generation int64, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	last, seen := c.at[name]
	if seen && last.generation == generation && now.Sub(last.time) < lookAgain {
		return false
	}
	if c.at == nil {
		c.at = map[types.NamespacedName]look{}
	}
	c.at[name] = look{time: now, generation: generation}
	return true
}

func (c *contents) forget(name types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.at, name)
}

// again returns when to look next at what an App uses; 0 for an App that asked for no restarts.
func (c *contents) again(a *v1alpha1.App) time.Duration {
	if c.source == nil || len(workload.References(a)) == 0 {
		return 0
	}
	return lookAgain
}

// changed restarts the Apps that use an object and asked for restarts, and has those looked at that
// miss one. It is called after each write through the agent. A write that changed nothing restarts
// nothing, so it may be repeated after a failure.
func (c *contents) changed(ctx context.Context, kind runnerapi.RestartTrigger, key runnerapi.Key) error {
	var list v1alpha1.List
	if err := c.store.Cached.List(ctx, &list, client.InNamespace(key.Namespace), appcache.Untouched); err != nil {
		return kubeproblem.From(err, "looking for the Apps that use "+key.Name)
	}
	for i := range list.Items {
		a := &list.Items[i]
		if missesSource(a) {
			c.store.Resync(ctx, a.Key())
		}
		if !slices.Contains(workload.References(a), workload.Reference{Kind: kind, Name: key.Name}) || !a.DeletionTimestamp.IsZero() {
			continue
		}
		err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			fresh, err := c.store.GetLive(ctx, a.Key())
			if err != nil {
				return client.IgnoreNotFound(err)
			}
			return c.follow(ctx, fresh, true)
		})
		if err != nil {
			return kubeproblem.From(err, fmt.Sprintf("restarting App %s, which uses %s", a.Key(), key.Name))
		}
	}
	return nil
}

// missesSource reports whether an App does not start because a Secret or a ConfigMap did not exist.
func missesSource(a *v1alpha1.App) bool {
	d := a.Status.Diagnosis
	return d != nil && (d.Cause == runnerapi.CauseMissingSecret || d.Cause == runnerapi.CauseMissingConfigMap)
}

// follow records on the App what its Secrets and ConfigMaps hold now. The record is part of
// the pod template, so that Kubernetes restarts the App by a rolling update. While one of them is
// missing the App runs on unchanged: a deleted Secret is not a reason to restart running pods.
func (c *contents) follow(ctx context.Context, a *v1alpha1.App, now bool) error {
	refs := workload.References(a)
	if len(refs) == 0 || c.source == nil {
		return nil
	}
	if due := c.due(client.ObjectKeyFromObject(a), a.Generation, c.now()); !due && !now {
		return nil
	}
	digest, err := c.digest(ctx, a.Namespace, refs)
	if err != nil {
		c.forget(client.ObjectKeyFromObject(a))
		return fmt.Errorf("look at what App %s uses: %w", a.Key(), err)
	}
	if digest == "" { // the pods cannot start before it is there, and that is the time to look
		c.forget(client.ObjectKeyFromObject(a))
		return nil
	}
	if digest == a.Annotations[objectmeta.Contents] {
		return nil
	}
	before := a.DeepCopy()
	if a.Annotations == nil {
		a.Annotations = map[string]string{}
	}
	a.Annotations[objectmeta.Contents] = digest
	return c.store.Cached.Patch(ctx, a, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}),
		client.FieldOwner(objectmeta.FieldManager))
}

// digest returns an empty string if an object is missing.
func (c *contents) digest(ctx context.Context, namespace string, refs []workload.Reference) (string, error) {
	sum := sha256.New()
	for _, ref := range refs {
		digest, err := c.source.ContentDigest(ctx, ref.Kind, runnerapi.Key{Namespace: namespace, Name: ref.Name})
		if err != nil || digest == "" {
			return "", err
		}
		_, _ = fmt.Fprintf(sum, "%s/%s=%s\n", ref.Kind, ref.Name, digest)
	}
	return hex.EncodeToString(sum.Sum(nil)[:16]), nil
}
