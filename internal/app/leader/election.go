package leader

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/utils/ptr"

	"github.com/pipeops/pipeops-vm-agent/internal/app/appcache"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/internal/wake"
)

// defaultLease is how long the other replicas wait for a dead leader; one that steps down releases
// the lease. The leader renews every eighth of that. This is half of Kubernetes' usual lease,
// because a needless change of leader costs only a few seconds' work.
const defaultLease = 8 * time.Second

// Config configures an Election.
type Config struct {
	Namespace string        // of the lease
	Replica   string        // the host's name if empty
	Lease     time.Duration // how long a leader that died is waited for; 8 s when zero
	Log       zerolog.Logger
}

// Election decides which replica of the agent reconciles and announces. All replicas serve the
// Runner API: a command is a write to the cluster, which the current leader follows.
//
// The manager has an election too, but ends the process that loses it. A replica that loses this
// election, because the API server was down, keeps serving and stands for election again.
type Election struct {
	duration time.Duration // of a lease
	newest   atomic.Pointer[Term]
	begun    atomic.Pointer[Term] // the newest one with which this replica has caught up
	leases   coordinationv1client.LeasesGetter
	replica  string
	// namespace is the namespace of the lease.
	namespace string
	store     *appcache.Store
	log       zerolog.Logger
	gained    wake.Signal
	stands    context.Context // ends when this replica resigns for good
	resign    context.CancelFunc
}

// Term is one leadership of this replica, from when it gets the lease until it loses it.
type Term struct {
	ctx    context.Context //nolint:containedctx // that is what it is
	giveUp context.CancelFunc
	term   int64
}

// New prepares the election of one replica.
func New(store *appcache.Store, cfg Config, rc *rest.Config) (*Election, error) {
	l := &Election{
		duration: cmp.Or(cfg.Lease, defaultLease), replica: cfg.Replica, namespace: cfg.Namespace,
		store: store, log: cfg.Log, gained: wake.New(),
	}
	l.stands, l.resign = context.WithCancel(context.Background())
	var err error
	if l.replica == "" {
		if l.replica, err = os.Hostname(); err != nil { // a pod's name; a container that restarts in the pod resumes its leadership at once
			return nil, fmt.Errorf("find this replica's name: %w", err)
		}
	}
	own := rest.CopyConfig(rc)
	own.Timeout = l.duration / 3 // a hanging request must not cost the leadership
	if l.leases, err = coordinationv1client.NewForConfig(own); err != nil {
		return nil, fmt.Errorf("prepare the election: %w", err)
	}
	return l, nil
}

// Leads reports whether this replica is the leader now and knows the Apps as its predecessor left
// them.
func (l *Election) Leads() bool { return l.Current() != nil }

// Current returns this replica's leadership while it leads, and nil otherwise.
func (l *Election) Current() *Term {
	if r := l.begun.Load(); r != nil && r.ctx.Err() == nil {
		return r
	}
	return nil
}

// Leadership identifies one leadership in the agent's cluster, in the order of terms. It marks what
// a former leader has sent, however late that arrives.
type Leadership struct {
	Lease string // its UID
	Term  int64  // how often the lease had changed hands
	Call  int64  // the number of the call to the control plane, to detect the leader's own late calls
}

// Identity returns the name of this replica's leadership. It returns an error if another replica
// leads by now.
func (l *Election) Identity(ctx context.Context, r *Term) (Leadership, error) {
	lease, err := l.leases.Leases(l.namespace).Get(ctx, objectmeta.FieldManager, metav1.GetOptions{})
	if err != nil {
		return Leadership{}, fmt.Errorf("read the lease of the agent's replicas: %w", err)
	}
	holder, term := ptr.Deref(lease.Spec.HolderIdentity, ""), int64(ptr.Deref(lease.Spec.LeaseTransitions, 0))
	if holder != l.replica || term != r.term {
		return Leadership{}, fmt.Errorf("another replica leads by now: %s, in term %d", holder, term)
	}
	return Leadership{Lease: string(lease.UID), Term: term}, nil
}

// Start implements manager.Runnable. It stands for election until ctx ends or this replica resigns.
// It then releases the lease, so that another replica takes it at once.
func (l *Election) Start(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.stands, cancel)() //nolint:contextcheck // resigning belongs to no call
	for ctx.Err() == nil {
		gaveUp, err := l.stand(ctx)
		if err != nil {
			return err
		}
		if gaveUp {
			retry.Wait(ctx, retry.Jitter(2*l.duration)) // at least one lease, so that another replica can take it
		}
	}
	return nil
}

// stand takes part in one election, and leads if this replica wins it, until the leadership ends.
// It reports whether the replica gave the lease up by itself.
func (l *Election) stand(ctx context.Context) (gaveUp bool, err error) {
	mine, giveUp := context.WithCancel(ctx)
	defer giveUp()
	lock := newTermLock(l.leases, l.namespace, l.replica)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: l.duration, RenewDeadline: l.duration * 5 / 8, RetryPeriod: l.duration / 8,
		ReleaseOnCancel: true, Name: objectmeta.FieldManager,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				if ctx.Err() == nil { // a late call: the term may have ended and the next begun
					l.newest.Store(&Term{ctx: ctx, giveUp: giveUp, term: lock.term})
					l.gain()
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

// NeedLeaderElection makes it a manager.LeaderElectionRunnable, which runs in every replica.
func (*Election) NeedLeaderElection() bool { return false }

// Resign lets another replica lead, for good. This replica keeps serving.
func (l *Election) Resign() { l.resign() }

// Gained reports when this replica got the lease. Begin then makes it lead.
func (l *Election) Gained() <-chan struct{} { return l.gained }

// gain reports that the lease was got. One report is enough: Begin looks at the newest term.
func (l *Election) gain() {
	l.gained.Raise()
}
