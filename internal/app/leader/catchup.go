package leader

import (
	"cmp"
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/appcache"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
)

// Begin makes this replica lead as soon as it knows the Apps as its predecessor left them.
// Otherwise a cache that is behind could show an App that the former leader has already removed and
// announced as gone. This replica would then announce the App again and recreate its objects.
func (l *Election) Begin() bool {
	r := l.newest.Load()
	ctx, cancel := context.WithTimeout(r.ctx, catchUpLeases*l.duration)
	defer cancel()
	err := l.CatchUp(ctx)
	switch {
	case r.ctx.Err() != nil:
		return false
	case err != nil:
		l.log.Error().Err(err).Msg("this replica acquired the lease and releases it: it cannot read the state of the Apps")
		r.giveUp()
		return false
	}
	l.begun.Store(r)
	return true
}

// CatchUp waits until the cache has the Apps as they are in the cluster by now, or newer. A deleted
// namespace, where the agent has lost its rights, must not keep it from leading in the others.
func (l *Election) CatchUp(ctx context.Context) error {
	scope := l.store.Scope.Only
	if len(scope) == 0 {
		scope = []string{metav1.NamespaceAll}
	}
	slow := time.Now().Add(slowAfter)
	for _, namespace := range scope {
		var now *listing
		err := l.until(ctx, time.Second, &slow, func() (err error) {
			now, err = l.count(ctx, namespace)
			if namespace != metav1.NamespaceAll && apierrors.IsForbidden(err) {
				l.log.Warn().Err(err).Str("namespace", namespace).Msg("leading without the state of a namespace's Apps: the agent lost its rights there")
				err = nil
			}
			return err
		})
		if err == nil && now != nil {
			err = l.until(ctx, peekAgain, &slow, func() error { return l.reached(ctx, now) })
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// until retries until try succeeds or ctx ends, and then returns the last error. It logs once if
// that is slow.
func (l *Election) until(ctx context.Context, pause time.Duration, slow *time.Time, try func() error) error {
	for {
		err := try()
		if err == nil {
			return nil
		}
		if !slow.IsZero() && time.Now().After(*slow) {
			*slow = time.Time{}
			l.log.Warn().Err(err).Msg("this replica holds the lease and still waits for the state of the Apps from the API server")
		}
		if !retry.Wait(ctx, retry.Jitter(pause)) {
			return err
		}
	}
}

// listing lists the Apps that existed in a namespace, or in all, at one moment.
type listing struct {
	namespace string
	version   string               // the moment
	apps      map[types.UID]string // the version of each
}

// count reads from the API server which Apps exist.
func (l *Election) count(ctx context.Context, namespace string) (*listing, error) {
	c := &listing{namespace: namespace, apps: map[types.UID]string{}}
	for more := ""; ; {
		page := &metav1.PartialObjectMetadataList{}
		page.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.Kind + "List"))
		if err := l.store.Live.List(ctx, page, client.InNamespace(namespace), client.Limit(appsAtOnce), client.Continue(more)); err != nil {
			return nil, fmt.Errorf("list Apps: %w", err)
		}
		for i := range page.Items {
			c.apps[page.Items[i].UID] = page.Items[i].ResourceVersion
		}
		c.version = cmp.Or(c.version, page.ResourceVersion)
		if more = page.Continue; more == "" {
			return c, nil
		}
	}
}

// reached returns what the cache still has from the time before the listing.
func (l *Election) reached(ctx context.Context, c *listing) error {
	var cached v1alpha1.List
	if err := l.store.Cached.List(ctx, &cached, client.InNamespace(c.namespace), appcache.Untouched); err != nil {
		return fmt.Errorf("list Apps: %w", err)
	}
	for i := range cached.Items {
		a := &cached.Items[i]
		outdated, err := c.outdates(a)
		if err != nil {
			return fmt.Errorf("compare App %s with the cluster's: %w", a.Key(), err)
		}
		if outdated {
			return fmt.Errorf("the API server's watch has not delivered the state of App %s yet: the known version is %s", a.Key(), a.ResourceVersion)
		}
	}
	return nil
}

// outdates reports whether a cached App is older than the listing: no newer version, and not one
// that was counted. An App that is missing from the cache does no harm: the replica announces
// nothing about it until it is there.
func (c *listing) outdates(a *v1alpha1.App) (bool, error) {
	if c.apps[a.UID] == a.ResourceVersion {
		return false, nil
	}
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, c.version)
	return order <= 0, err
}

const (
	// catchUpLeases is for how many leases a replica with the lease may stay behind before it gives
	// the lease up: another replica may be more up to date.
	catchUpLeases = 4
	// slowAfter is the time after which a slow takeover is logged.
	slowAfter = 5 * time.Second
	// peekAgain is the interval of looks at the cache while it is behind.
	peekAgain = 50 * time.Millisecond
	// appsAtOnce bounds the Apps in one answer of the API server.
	appsAtOnce = 100
)
