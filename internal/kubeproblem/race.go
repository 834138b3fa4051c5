package kubeproblem

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/pipeops/pipeops-vm-agent/internal/limit"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
)

const (
	// raceTime is how long a write is repeated while others win. A call has 30 s.
	raceTime              = 20 * time.Second
	firstPause, lastPause = 10 * time.Millisecond, 500 * time.Millisecond
)

// Race carries out a write that first reads what it changes. It does so again for as long as
// another client wrote in between, or is about to be done with the object (problem.Busy).
func Race(ctx context.Context, write func() error) error {
	end := time.Now().Add(raceTime)
	for n := 1; ; n++ {
		err := write()
		if !raced(err) || time.Now().After(end) || !retry.Wait(ctx, retry.After(firstPause, lastPause, n)) {
			return err
		}
	}
}

// Races are writes by one process, whose writes of the same object follow one another.
type Races struct{ locks limit.Locks }

// Run is Race for the object of that name, when its turn has come.
func (r *Races) Run(ctx context.Context, name string, write func() error) error {
	if err := r.locks.Lock(ctx, name); err != nil {
		return err
	}
	defer r.locks.Unlock(name)
	return Race(ctx, write)
}

// raced reports whether reading and writing again helps. Fields that others own stay theirs.
func raced(err error) bool {
	return apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) && FieldConflicts(err) == "" || problem.Is(err, problem.Busy)
}
