package app

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
	crevent "sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/pipeops/pipeops-vm-agent/internal/retry"
)

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

// takeOver reconciles everything when this replica becomes the leader: what happened before was the
// former leader's task.
func (e *Engine) takeOver(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-e.leadership.gained:
		}
		if !e.begin(e.leadership.newest.Load()) { //nolint:contextcheck // a leadership ends before ctx
			continue
		}
		e.log.Info().Msg("this replica of the agent leads: it reconciles Apps and announces them")
		e.announcer.reread()
		e.announcer.look()
		if e.cfg.Led != nil {
			e.cfg.Led()
		}
		var list List
		if err := e.cached.List(ctx, &list, untouched); err != nil {
			return nil //nolint:nilerr // the context ended
		}
		for i := range list.Items {
			select {
			case e.leadership.resync <- crevent.TypedGenericEvent[*App]{Object: &list.Items[i]}:
			case <-ctx.Done():
				return nil
			}
		}
	}
}

// begin makes this replica lead as soon as it knows the Apps as its predecessor left them.
// Otherwise a cache that is behind could show an App that the former leader has already removed and
// announced as gone. This replica would then announce the App again and recreate its objects.
func (e *Engine) begin(r *reign) bool {
	ctx, cancel := context.WithTimeout(r.ctx, catchUpLeases*e.leadership.duration)
	defer cancel()
	err := e.catchUp(ctx)
	switch {
	case r.ctx.Err() != nil:
		return false
	case err != nil:
		e.log.Error().Err(err).Msg("this replica of the agent got the lease and gives it up: it does not learn how the Apps are")
		r.giveUp()
		return false
	}
	e.leadership.begun.Store(r)
	return true
}

// catchUp waits until the cache has the Apps as they are in the cluster by now, or newer. A deleted
// namespace, where the agent has lost its rights, must not keep it from leading in the others.
func (e *Engine) catchUp(ctx context.Context) error {
	scope := e.cfg.Namespaces
	if len(scope) == 0 {
		scope = []string{metav1.NamespaceAll}
	}
	slow := time.Now().Add(slowAfter)
	for _, namespace := range scope {
		var now *listing
		err := e.until(ctx, time.Second, &slow, func() (err error) {
			now, err = e.count(ctx, namespace)
			if namespace != metav1.NamespaceAll && apierrors.IsForbidden(err) {
				e.log.Warn().Err(err).Str("namespace", namespace).Msg("leading without knowing how the Apps of a namespace are: the agent has lost its rights there")
				err = nil
			}
			return err
		})
		if err == nil && now != nil {
			err = e.until(ctx, peekAgain, &slow, func() error { return e.reached(ctx, now) })
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// until retries until try succeeds or ctx ends, and then returns the last error. It logs once if
// that is slow.
func (e *Engine) until(ctx context.Context, pause time.Duration, slow *time.Time, try func() error) error {
	for {
		err := try()
		if err == nil {
			return nil
		}
		if !slow.IsZero() && time.Now().After(*slow) {
			*slow = time.Time{}
			e.log.Warn().Err(err).Msg("this replica of the agent has the lease, and still waits to hear from the API server how the Apps are")
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
func (e *Engine) count(ctx context.Context, namespace string) (*listing, error) {
	c := &listing{namespace: namespace, apps: map[types.UID]string{}}
	for more := ""; ; {
		page := &metav1.PartialObjectMetadataList{}
		page.SetGroupVersionKind(GroupVersion.WithKind(Kind + "List"))
		if err := e.live.List(ctx, page, client.InNamespace(namespace), client.Limit(appsAtOnce), client.Continue(more)); err != nil {
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
func (e *Engine) reached(ctx context.Context, c *listing) error {
	var cached List
	if err := e.cached.List(ctx, &cached, client.InNamespace(c.namespace), untouched); err != nil {
		return fmt.Errorf("list Apps: %w", err)
	}
	for i := range cached.Items {
		a := &cached.Items[i]
		outdated, err := c.outdates(a)
		if err != nil {
			return fmt.Errorf("compare App %s with the cluster's: %w", a.key(), err)
		}
		if outdated {
			return fmt.Errorf("the API server's watch has not told yet how App %s is: known is its version %s", a.key(), a.ResourceVersion)
		}
	}
	return nil
}

// outdates reports whether a cached App is older than the listing: no newer version, and not one
// that was counted. An App that is missing from the cache does no harm: the replica announces
// nothing about it until it is there.
func (c *listing) outdates(a *App) (bool, error) {
	if c.apps[a.UID] == a.ResourceVersion {
		return false, nil
	}
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, c.version)
	return order <= 0, err
}
