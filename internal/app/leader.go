package app

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/utils/ptr"
	crevent "sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/pipeops/pipeops-vm-agent/internal/managed"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
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
	duration time.Duration // of a lease
	newest   atomic.Pointer[reign]
	begun    atomic.Pointer[reign] // the newest with which this replica has caught up
	leases   coordinationv1client.LeasesGetter
	replica  string
	// namespace is the lease's.
	namespace string
	gained    chan struct{}
	stands    context.Context // ends when this replica wants to lead no more
	resign    context.CancelFunc
	resync    chan crevent.TypedGenericEvent[*App]
}

// reign is one leadership of this replica: from when it gets the lease until it loses it.
type reign struct {
	ctx    context.Context //nolint:containedctx // that is what it is
	giveUp context.CancelFunc
	term   int64
}

func newLeadership(cfg Config, rc *rest.Config) (*leadership, error) {
	l := &leadership{
		duration: cmp.Or(cfg.Lease, defaultLease), replica: cfg.Replica, namespace: cfg.Namespace,
		gained: make(chan struct{}, 1), resync: make(chan crevent.TypedGenericEvent[*App]),
	}
	l.stands, l.resign = context.WithCancel(context.Background())
	var err error
	if l.replica == "" {
		if l.replica, err = os.Hostname(); err != nil { // a pod's name; a container that was restarted in it leads on at once
			return nil, fmt.Errorf("find this replica's name: %w", err)
		}
	}
	own := rest.CopyConfig(rc)
	own.Timeout = l.duration / 3 // a request that hangs must not cost the leadership
	if l.leases, err = coordinationv1client.NewForConfig(own); err != nil {
		return nil, fmt.Errorf("prepare the election: %w", err)
	}
	return l, nil
}

// leads says whether this replica is the leader now, and knows the Apps as its predecessor left them.
func (l *leadership) leads() bool { return l.current() != nil }

// current is this replica's leadership, while it leads.
func (l *leadership) current() *reign {
	if r := l.begun.Load(); r != nil && r.ctx.Err() == nil {
		return r
	}
	return nil
}

// Leadership is one among all that the agent's cluster has had, in the order of their terms: what one of
// before has sent is known by it, however late that arrives.
type Leadership struct {
	Lease string // its UID
	Term  int64  // how often it had changed hands
	Call  int64  // which of the calls to the control plane, for what arrives late of its own
}

// called is the name of this replica's leadership. It is an error if another one leads by now.
func (l *leadership) called(ctx context.Context, r *reign) (Leadership, error) {
	lease, err := l.leases.Leases(l.namespace).Get(ctx, managed.FieldManager, metav1.GetOptions{})
	if err != nil {
		return Leadership{}, fmt.Errorf("read the lease of the agent's replicas: %w", err)
	}
	holder, term := ptr.Deref(lease.Spec.HolderIdentity, ""), int64(ptr.Deref(lease.Spec.LeaseTransitions, 0))
	if holder != l.replica || term != r.term {
		return Leadership{}, fmt.Errorf("another replica leads by now: %s, in term %d", holder, term)
	}
	return Leadership{Lease: string(lease.UID), Term: term}, nil
}

// run stands for election until ctx ends or this replica resigns. The lease is
// released then, so that another replica takes it at once.
func (l *leadership) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.stands, cancel)() //nolint:contextcheck // resigning belongs to no call
	for ctx.Err() == nil {
		gaveUp, err := l.stand(ctx)
		if err != nil {
			return err
		}
		if gaveUp {
			retry.Wait(ctx, retry.Jitter(2*l.duration)) // one lease at least, for another replica to take it
		}
	}
	return nil
}

// stand takes part in one election, and leads if this replica wins it, until that ends. It says whether
// the replica gave the lease up by itself.
func (l *leadership) stand(ctx context.Context) (gaveUp bool, err error) {
	mine, giveUp := context.WithCancel(ctx)
	defer giveUp()
	lock := newTermLock(l.leases, l.namespace, l.replica)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: l.duration, RenewDeadline: l.duration * 5 / 8, RetryPeriod: l.duration / 8,
		ReleaseOnCancel: true, Name: managed.FieldManager,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				if ctx.Err() == nil { // nobody waits for this call: the term may have ended, and the next begun
					l.newest.Store(&reign{ctx: ctx, giveUp: giveUp, term: lock.term})
					wake(l.gained)
				}
			},
			OnStoppedLeading: func() {}, // the term's context has ended
		},
	})
	if err != nil {
		return false, fmt.Errorf("prepare the election: %w", err)
	}
	elector.Run(mine)
	return mine.Err() != nil && ctx.Err() == nil, nil
}

// Leads says whether this replica reconciles and announces.
func (e *Engine) Leads() bool { return e.leadership.leads() }

// StepDown lets another replica lead, for good. This one goes on serving.
func (e *Engine) StepDown() { e.leadership.resign() }

// addLeadership hangs the election into the manager.
func (e *Engine) addLeadership(m manager.Manager) error {
	if err := m.Add(always(e.leadership.run)); err != nil {
		return err
	}
	return m.Add(always(e.takeOver))
}
