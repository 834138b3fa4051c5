package leader

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
)

// termLock is the lease as one election sees it. The replica that wins it begins its own term,
// even if it also had the last one.
//
// A process that was killed leaves the lease in its name. The next process with that name, in the
// same pod or on the same machine, need not wait until it expires. Kubernetes' election would
// continue the existing term. But what the dead process sent may still be in flight, and must be
// recognizable by an earlier term. So until the election is won, the lease seems to have been
// released by this name, and taking it counts as a change of hands.
type termLock struct {
	resourcelock.Interface
	held bool
	term int64 // once it is held
}

func newTermLock(leases coordinationv1client.LeasesGetter, namespace, replica string) *termLock {
	return &termLock{Interface: &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: objectmeta.FieldManager}, Client: leases,
		LockConfig: resourcelock.ResourceLockConfig{Identity: replica},
	}}
}

// Get implements resourcelock.Interface.
func (l *termLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err == nil && !l.held && record.HolderIdentity == l.Identity() {
		record.HolderIdentity = ""
	}
	return record, raw, err
}

// Create implements resourcelock.Interface.
func (l *termLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	err := l.Interface.Create(ctx, record)
	l.hold(record, err)
	return err
}

// Update implements resourcelock.Interface.
func (l *termLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	err := l.Interface.Update(ctx, record)
	l.hold(record, err)
	return err
}

// hold notes the term with which the election was won. It does not change while that lasts.
func (l *termLock) hold(record resourcelock.LeaderElectionRecord, err error) {
	if err == nil && !l.held {
		l.held, l.term = true, int64(record.LeaderTransitions)
	}
}
