package helm

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	ri "helm.sh/helm/v4/pkg/release"
	"helm.sh/helm/v4/pkg/release/common"
	release "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage/driver"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/pipeops/pipeops-vm-agent/internal/helm/stored"
	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// releaseLabel marks a lock with its release, and a revision of the agent with its number. The helm
// program copies labels, so its own revision has another revision's number.
const releaseLabel = objectmeta.Release

// brokeOff is the description of a revision whose command is no longer running.
const brokeOff = "the command was interrupted: the agent ended during it. Its objects exist; the next command continues"

// theirsAfter is the age at which a foreign command that has not ended counts as aborted.
const theirsAfter = 15 * time.Minute

// store is Helm's storage, in Secrets of the namespace. It signals when a revision exists from
// which others see the progress.
type store struct {
	driver.Driver
	// fence ends when another process may be working on the release: nothing is written after that.
	fence context.Context
	// held reports whether we have the lock, or had it a moment ago. A process that was stopped in
	// the middle of a command notices the loss only when it continues.
	held func() error
	// remains returns why the release's history has to stay; nil if it may go.
	remains func() error
	once    sync.Once
	begun   chan struct{}
	// command is the digest of the command that works on the release; empty if it has no name.
	command string
	// made is the current chart, if any: a release is stored with the chart as it arrived.
	made *rendered
}

// fenced returns why nothing may be written any more.
func (s *store) fenced() error {
	if s.fence.Err() != nil {
		return context.Cause(s.fence)
	}
	return s.held()
}

func (s *store) keep(r *rendered) { s.made = r }

// Create implements driver.Driver.
func (s *store) Create(key string, rel ri.Releaser) error {
	if err := s.fenced(); err != nil {
		return err
	}
	r, ok := rel.(*release.Release)
	if !ok {
		return errors.New("a release of another kind")
	}
	if s.made != nil && r.Chart == s.made.literal {
		r.Chart = s.made.chart
	}
	marks := map[string]string{} // Helm may share the labels with an earlier revision
	maps.Copy(marks, r.Labels)
	marks[releaseLabel] = strconv.Itoa(r.Version)
	if marks[objectmeta.Command] = s.command; s.command == "" {
		delete(marks, objectmeta.Command)
	}
	r.Labels = marks
	err := s.Driver.Create(key, r)
	if err == nil {
		s.begin()
	}
	return err
}

// Update implements driver.Driver.
func (s *store) Update(key string, rel ri.Releaser) error {
	if err := s.fenced(); err != nil {
		return err
	}
	return s.Driver.Update(key, rel)
}

// Delete implements driver.Driver.
func (s *store) Delete(key string) (ri.Releaser, error) {
	if err := s.fenced(); err != nil {
		return nil, err
	}
	if s.remains != nil {
		if err := s.remains(); err != nil {
			return nil, err
		}
	}
	return s.Driver.Delete(key)
}

func (s *store) begin() { s.once.Do(func() { close(s.begun) }) }

// record is a revision as the labels of its Secret describe it.
type record struct {
	key     string // of the Secret
	name    string
	version int
	status  common.Status
	mark    string
	command string // digest of the command that made it; empty if that is not known
	updated time.Time
}

func (r record) pending() bool {
	return r.status.IsPending() || r.status == common.StatusUninstalling
}

// records returns the existing revisions, the newest of each release first. It does not read their
// content, which may have megabytes each.
func records(ctx context.Context, c *clients, namespace, name string) ([]record, error) {
	selector := labels.Set{}
	if name != "" {
		selector["name"] = name
	}
	list, err := stored.Find(ctx, c.metadata, namespace, selector)
	if err != nil {
		return nil, kubeproblem.From(err, "reading the releases of namespace "+namespace)
	}
	var all []record
	for _, m := range list {
		version, err := strconv.Atoi(m.Labels["version"])
		if err != nil {
			continue
		}
		r := record{
			key: m.Name, name: m.Labels["name"], version: version, status: common.Status(m.Labels["status"]),
			mark: m.Labels[releaseLabel], updated: stamp(m.Labels, m.CreationTimestamp.Time),
		}
		if r.mark == m.Labels["version"] { // or the helm program copied the labels
			r.command = m.Labels[objectmeta.Command]
		}
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b record) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(b.version, a.version))
	})
	return all, nil
}

func stamp(labels map[string]string, created time.Time) time.Time {
	for _, key := range []string{"modifiedAt", "createdAt"} {
		if seconds, err := strconv.ParseInt(labels[key], 10, 64); err == nil {
			return time.Unix(seconds, 0).UTC()
		}
	}
	return created
}

// ours reports whether a release was created through the agent, by its revisions.
func ours(history []record) bool {
	return slices.ContainsFunc(history, func(r record) bool { return r.mark != "" })
}

// abandoned reports whether a pending revision has no running command. The agent's own revision has
// none once no replica holds the lock; a foreign one has none after too long a time.
func (r record) abandoned(now time.Time) bool {
	return r.mark == strconv.Itoa(r.version) || r.status == common.StatusUninstalling && r.mark != "" || now.Sub(r.updated).Abs() > theirsAfter
}

// driverFor returns Helm's driver for revisions, bound to a context, since its methods take none.
func (r *Releases) driverFor(ctx context.Context, namespace string, admit stored.Admit) (driver.Driver, error) {
	c, err := clientsFor(guarded(ctx, r.config, namespace, false))
	if err != nil {
		return nil, err
	}
	return stored.New(c.metadata, c.core, namespace, logTo(r.opts.Log), admit), nil
}

// errRemoved means that a listed revision no longer exists: the release was uninstalled meanwhile,
// or the revision is too old to be kept.
var errRemoved = problem.Errorf(problem.Busy, "send it again", "a revision of the release was removed while it was read")

// one reads one revision.
func one(d driver.Driver, r record) (*release.Release, error) {
	got, err := d.Get(r.key)
	if errors.Is(err, driver.ErrReleaseNotFound) {
		return nil, errRemoved
	}
	if err != nil {
		return nil, kubeproblem.From(err, "reading a revision of release "+r.name)
	}
	rel, ok := got.(*release.Release)
	if !ok || rel.Info == nil || rel.Chart == nil || rel.Chart.Metadata == nil {
		return nil, errors.New("a revision of release " + r.name + " cannot be read")
	}
	return rel, nil
}

// deletion is what Helm writes into a release while it uninstalls it, not knowing how that ends.
const deletion = "Deletion in progress (or silently failed)"

// view returns a revision as Runners see it.
func view(rel *release.Release, managed bool) runnerapi.Release {
	why := clip(rel.Info.Description)
	if why == deletion { // its status says as much
		why = ""
	}
	return runnerapi.Release{
		Namespace: rel.Namespace, Name: rel.Name, Revision: rel.Version, Status: runnerapi.ReleaseStatus(rel.Info.Status.String()),
		Description: why, UpdatedAt: rel.Info.LastDeployed.UTC(), Managed: managed,
		Chart: runnerapi.ReleaseChart{Name: rel.Chart.Metadata.Name, Version: rel.Chart.Metadata.Version, AppVersion: rel.Chart.Metadata.AppVersion},
	}
}
