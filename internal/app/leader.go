package app

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"
	crevent "sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/pipeops/pipeops-vm-agent/internal/managed"
)

// defaultLease is how long a leader that died is waited for; one that steps down is not.
// It renews every eighth of that: half of Kubernetes' usual lease, because nobody
// loses more than a few seconds' work when it changes hands for no good reason.
const defaultLease = 8 * time.Second

// leadership says which replica of the agent reconciles and announces. All
// replicas serve the Runner API: a command is a write to the cluster, which the
// leader follows, whoever that is by then.
//
// The manager has an election too, but ends the process that loses it. A
// replica that loses this one, because the API server was away, goes on serving
// and stands for election again.
type leadership struct {
	elector *leaderelection.LeaderElector
	term    atomic.Pointer[context.Context] // of this replica's own leadership
	name    atomic.Pointer[namedTerm]
	lease   func(context.Context) (*coordinationv1.Lease, error)
	replica string
	gained  chan struct{}
	stands  context.Context // ends when this replica wants to lead no more
	resign  context.CancelFunc
	resync  chan crevent.TypedGenericEvent[*App]
}

func newLeadership(cfg Config, rc *rest.Config) (*leadership, error) {
	l := &leadership{gained: make(chan struct{}, 1), resync: make(chan crevent.TypedGenericEvent[*App])}
	l.stands, l.resign = context.WithCancel(context.Background())
	identity, lease := cfg.Replica, cfg.Lease
	if identity == "" {
		name, err := os.Hostname() // a pod's name; a container that was restarted in it leads on at once
		if err != nil {
			return nil, fmt.Errorf("find this replica's name: %w", err)
		}
		identity = name
	}
	if lease == 0 {
		lease = defaultLease
	}
	own := rest.CopyConfig(rc)
	own.Timeout = lease / 3 // a request that hangs must not cost the leadership
	leases, err := coordinationv1client.NewForConfig(own)
	if err != nil {
		return nil, fmt.Errorf("prepare the election: %w", err)
	}
	l.replica = identity
	l.lease = func(ctx context.Context) (*coordinationv1.Lease, error) {
		return leases.Leases(cfg.Namespace).Get(ctx, managed.FieldManager, metav1.GetOptions{})
	}
	l.elector, err = leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: cfg.Namespace, Name: managed.FieldManager}, Client: leases,
			LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		},
		LeaseDuration: lease, RenewDeadline: lease * 5 / 8, RetryPeriod: lease / 8,
		ReleaseOnCancel: true, Name: managed.FieldManager,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(term context.Context) {
				l.term.Store(&term)
				wake(l.gained)
				if cfg.Led != nil {
					cfg.Led()
				}
			},
			OnStoppedLeading: func() {}, // the term's context has ended
		},
	})
	if err != nil {
		return nil, fmt.Errorf("prepare the election: %w", err)
	}
	return l, nil
}

// leads says whether this replica is the leader now.
func (l *leadership) leads() bool {
	term := l.term.Load()
	return term != nil && (*term).Err() == nil
}

// Leadership is one among all that the agent's cluster has had, in the order of their terms: what one of
// before has sent is known by it, however late that arrives.
type Leadership struct {
	Lease string // its UID
	Term  int64  // how often it had changed hands
}

// namedTerm is what a leadership is called, by its term's context.
type namedTerm struct {
	Leadership
	term *context.Context
}

// own is this replica's leadership by its name. It is an error if another one leads by now.
func (l *leadership) own(ctx context.Context) (Leadership, error) {
	term := l.term.Load()
	if known := l.name.Load(); known != nil && known.term == term {
		return known.Leadership, nil
	}
	lease, err := l.lease(ctx)
	if err != nil {
		return Leadership{}, fmt.Errorf("read the lease of the agent's replicas: %w", err)
	}
	if holder := ptr.Deref(lease.Spec.HolderIdentity, ""); holder != l.replica {
		return Leadership{}, fmt.Errorf("another replica leads by now: %s", holder)
	}
	found := &namedTerm{Leadership{Lease: string(lease.UID), Term: int64(ptr.Deref(lease.Spec.LeaseTransitions, 0))}, term}
	l.name.Store(found)
	return found.Leadership, nil
}

// run stands for election until ctx ends or this replica resigns. The lease is
// released then, so that another replica takes it at once.
func (l *leadership) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.stands, cancel)() //nolint:contextcheck // resigning belongs to no call
	for ctx.Err() == nil {
		l.elector.Run(ctx)
	}
	return nil
}

// Leads says whether this replica reconciles and announces.
func (e *Engine) Leads() bool { return e.leadership.leads() }

// StepDown lets another replica lead, for good. This one goes on serving.
func (e *Engine) StepDown() { e.leadership.resign() }

// takeOver has everything looked at when this replica becomes the leader: what
// happened before was the former leader's business.
func (e *Engine) takeOver(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-e.leadership.gained:
		}
		e.log.Info().Msg("this replica of the agent leads: it reconciles Apps and announces them")
		e.announcer.reread()
		e.announcer.look()
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

// addLeadership hangs the election into the manager.
func (e *Engine) addLeadership(m manager.Manager) error {
	if err := m.Add(always(e.leadership.run)); err != nil {
		return err
	}
	return m.Add(always(e.takeOver))
}
