package dashboard

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/pipeops/pipeops-vm-agent/internal/app/revision"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const (
	// deploysShown is how many deploys the overview shows.
	deploysShown = 5
	// deploysRead is of how many Apps it reads the revisions: those that changed their state last.
	deploysRead = 2 * deploysShown
)

// deploy is a revision of an App.
type deploy struct {
	runnerapi.Revision
	App, Path, State string
}

// readDeploys returns the newest revisions, of the Apps whose state changed last: a deploy changes
// the state. An error does not hide what was read.
func (d *site) readDeploys(ctx context.Context, stored []v1alpha1.App) ([]deploy, error) {
	apps := slices.SortedFunc(slices.Values(stored), func(a, b v1alpha1.App) int { return changedAt(&b) - changedAt(&a) })
	apps = apps[:min(len(apps), deploysRead)]
	found, errs := make([][]deploy, len(apps)), make([]error, len(apps))
	var reading sync.WaitGroup
	for i := range apps {
		reading.Go(func() { found[i], errs[i] = d.deploysOf(ctx, &apps[i]) })
	}
	reading.Wait()
	all := slices.Concat(found...)
	slices.SortFunc(all, func(a, b deploy) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.App, b.App), cmp.Compare(b.Revision.Revision, a.Revision.Revision))
	})
	return all[:min(len(all), deploysShown)], cmp.Or(errs...)
}

// changedAt returns when an App last changed its state, in seconds.
func changedAt(a *v1alpha1.App) int {
	at := a.CreationTimestamp.Time
	if last := a.Status.LastTransition; last != nil && last.After(at) {
		at = *last
	}
	return int(at.Unix())
}

// deploysOf returns the newest revisions of an App. One that was replaced is healthy or not.
func (d *site) deploysOf(ctx context.Context, a *v1alpha1.App) ([]deploy, error) {
	all, err := d.cluster.history.List(ctx, a)
	if err != nil {
		return nil, err
	}
	app := a.Wire()
	var deploys []deploy
	for _, r := range revision.Described(a, all[max(len(all)-deploysShown, 0):], a.Status.Revision) {
		state := "Not healthy"
		switch {
		case r.Current:
			state = app.State()
		case r.Healthy:
			state = string(runnerapi.PhaseHealthy)
		}
		deploys = append(deploys, deploy{r, a.Key().String(), pathOf(app), state})
	}
	return deploys, nil
}
