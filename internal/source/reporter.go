package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/workqueue"

	"github.com/pipeops/pipeops-vm-agent/internal/limit"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/internal/source/forge"
	"github.com/pipeops/pipeops-vm-agent/internal/source/git"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const (
	// reporters is how many reports are sent at a time: one of each namespace and each Runner,
	// since a forge may be slow.
	reporters = 2
	// firstRetry and lastRetry are the pauses after a report that was not sent.
	firstRetry = 10 * time.Second
	lastRetry  = 10 * time.Minute
	// keepPatience bounds the write of what a forge has accepted.
	keepPatience = 10 * time.Second
)

// reporter sends the states of commits to forges, beside the workers that bring commits. Those
// leave the newest status of each source here, and wait for nothing. What a forge has accepted is
// in the source's status: after a restart the agent continues from there.
type reporter struct {
	applier *applier
	cluster *cluster
	revoked *revokedRunners
	leads   func() bool
	agent   string
	now     func() time.Time
	log     zerolog.Logger
	work    workqueue.TypedDelayingInterface[runnerapi.Key]
	lanes   *limit.Lanes[runnerapi.Key]
	writes  limit.Locks // of a source's status

	page atomic.Pointer[func(app runnerapi.Key) string]

	mu   sync.Mutex
	news map[runnerapi.Key]news
}

// news is the newest that is known of a source.
type news struct {
	source   *object // with the status that was written last
	report   runnerapi.SourceReportStatus
	failures int
}

func newReporter(c Config, a *applier, cluster *cluster, revoked *revokedRunners) *reporter {
	return &reporter{
		applier: a, cluster: cluster, revoked: revoked, leads: c.Leads, agent: c.Agent, now: time.Now, log: c.Log,
		work:  workqueue.NewTypedDelayingQueue[runnerapi.Key](),
		lanes: limit.NewLanes[runnerapi.Key](limit.PerOwner{Namespace: 1, Runner: 1}),
		news:  map[runnerapi.Key]news{},
	}
}

// reset forgets everything: another replica may have sent reports meanwhile.
func (r *reporter) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.news)
}

func (r *reporter) forget(key runnerapi.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.news, key)
}

func (r *reporter) newest(key runnerapi.Key) (news, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, ok := r.news[key]
	return n, ok
}

// write writes the status of a source, with the newest report, and takes it over.
func (r *reporter) write(ctx context.Context, sources dynamic.ResourceInterface, o *object, s runnerapi.SourceStatus) error {
	if err := r.writes.Lock(ctx, o.key().String()); err != nil {
		return err
	}
	defer r.writes.Unlock(o.key().String())
	n, known := r.newest(o.key())
	switch {
	case o.Spec.Report == nil:
		s.Report = nil
	case known && n.source.UID == o.UID && n.report != (runnerapi.SourceReportStatus{}):
		s.Report = &n.report
	}
	if err := write(ctx, sources, o, s); err != nil {
		return err
	}
	o.Status = s
	r.offer(o)
	return nil
}

// offer takes a source with its newest status.
func (r *reporter) offer(o *object) {
	if o.Spec.Report == nil {
		r.forget(o.key())
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	n, known := r.news[o.key()]
	if !known || n.source.UID != o.UID {
		n = news{}
		if o.Status.Report != nil {
			n.report = *o.Status.Report
		}
	} else if e := n.report.Error; e != nil && e.Code != string(forge.RateLimited) && n.source.answered() != o.answered() {
		n.report.RetryAt = "" // what was wrong may have been fixed
	}
	n.source = o
	r.news[o.key()] = n
	r.work.Add(o.key())
}

// answered returns the spec and the call to which the status is the answer.
func (o *object) answered() string {
	return fmt.Sprint(o.Status.ObservedGeneration, " ", o.Status.ObservedSync)
}

// drain sends reports until the queue is shut down.
func (r *reporter) drain(ctx context.Context) {
	r.lanes.Drain(r.work, r.ownerOf, func(key runnerapi.Key) {
		if wait := r.send(ctx, key); wait > 0 {
			r.work.AddAfter(key, wait)
		}
	})
}

func (r *reporter) ownerOf(key runnerapi.Key) limit.Owner {
	o := limit.Owner{Namespace: key.Namespace}
	if n, ok := r.newest(key); ok {
		o.Runner = n.source.caller().Runner
	}
	return o
}

// send sends the newest state of a source, if that is due. It returns when to look again; 0 for not
// before there is a newer status.
func (r *reporter) send(ctx context.Context, key runnerapi.Key) time.Duration {
	n, known := r.newest(key)
	if !known || ctx.Err() != nil {
		return 0
	}
	if !r.leads() {
		return soon
	}
	o, now := n.source, r.now()
	want, shown := stateOf(o)
	want.url = r.urlOf(ctx, o)
	if !shown || r.revoked.has(o.caller().Runner) {
		return 0
	}
	wait, ok := due(want, n.report, now)
	if n.report.ObservedGeneration != o.Status.ObservedGeneration { // it may go elsewhere
		wait, ok = 0, true
	}
	if !ok {
		if n.report.Error != nil { // what could not be sent is not true any more
			n.report.Error, n.report.RetryAt = nil, ""
			r.keep(ctx, n)
		}
		return 0
	}
	if at, err := time.Parse(time.RFC3339, n.report.RetryAt); err == nil {
		wait = max(wait, at.Sub(now))
	}
	if wait > 0 {
		return wait
	}
	return r.deliver(ctx, n, want)
}

// deliver sends a state, and keeps what came of it.
func (r *reporter) deliver(ctx context.Context, n news, want commitState) time.Duration {
	err := r.attempt(ctx, &n, want)
	if err != nil && ctx.Err() != nil { // the agent stops
		r.keep(ctx, n)
		return 0
	}
	if err == nil {
		n.report.Error, n.report.RetryAt, n.failures = nil, "", 0
		n.report.ObservedGeneration = n.source.Status.ObservedGeneration
		r.keep(ctx, n)
		return 0
	}
	n.failures++
	wait := pauseAfter(err, n.failures)
	e := asSourceError(err)
	e.Commit = want.commit
	if isNew := date(e, n.report.Error, r.stamp()); isNew {
		r.log.Warn().Err(err).Stringer("source", n.source.key()).Str("commit", want.commit).Msg("failed to report the state of a commit; retrying")
	}
	n.report.Error, n.report.RetryAt = e, r.now().Add(wait).UTC().Format(time.RFC3339)
	r.keep(ctx, n)
	return wait
}

func (r *reporter) stamp() string { return r.now().UTC().Format(time.RFC3339) }

// pauseAfter returns when to send again what was not accepted.
func pauseAfter(err error, failures int) time.Duration {
	wait := retry.Jitter(lastRetry)
	if g, ok := errors.AsType[*git.Error](err); ok && (g.Reason == git.Unreachable || g.Reason == git.Timeout || g.Reason == forge.RateLimited) {
		wait = retry.After(firstRetry, lastRetry, failures)
	}
	if p, ok := errors.AsType[*forge.PauseError](err); ok {
		wait = max(wait, p.For)
	}
	return wait
}

// attempt sends a state, and writes into the news what the forge has accepted.
func (r *reporter) attempt(ctx context.Context, n *news, want commitState) error {
	o := n.source
	if err := r.applier.allowed(o, putIntent); err != nil {
		return err
	}
	to, err := r.destination(ctx, o)
	if err != nil {
		return err
	}
	if err := r.supersede(ctx, n, to, want.commit); err != nil {
		return err
	}
	if err := r.comment(ctx, n, to, want); err != nil {
		return err
	}
	return r.report(ctx, n, to, forge.Report{
		State: want.state, Commit: want.commit, Description: want.description, URL: want.url, Page: r.pageOf(o),
	})
}

// destination is where reports of a source go.
type destination struct {
	remote      git.Remote
	repository  forge.Repository
	credentials forge.Credentials
}

// destination reads where the reports of a source go. It contacts no forge.
func (r *reporter) destination(ctx context.Context, o *object) (destination, error) {
	at, err := forge.Locate(o.Spec.URL, *o.Spec.Report)
	if err != nil {
		return destination{}, err
	}
	name := o.Spec.Report.Credentials
	data, err := r.applier.secret(ctx, o, name)
	if err != nil {
		return destination{}, err
	}
	credentials, err := forge.ReadCredentials(name, data, at)
	return destination{r.applier.bare(o), at, credentials}, err
}

// supersede ends the state of an earlier commit that would be pending for ever.
func (r *reporter) supersede(ctx context.Context, n *news, to destination, by string) error {
	if n.report.State != runnerapi.ReportPending || n.report.Commit == by {
		return nil
	}
	err := r.report(ctx, n, to, forge.Report{
		State: runnerapi.ReportError, Commit: n.report.Commit, Superseded: true,
		Description: fmt.Sprintf("superseded by commit %.12s before it was ready", by),
	})
	if g, ok := errors.AsType[*git.Error](err); ok && (g.Reason == forge.Refused || g.Reason == git.NotFound) {
		return nil // the commit may be gone from the repository
	}
	return err
}

func (r *reporter) report(ctx context.Context, n *news, to destination, report forge.Report) error {
	o := n.source
	report.Context = fmt.Sprintf("pipeops/%s/%s/%s", r.agent, o.Namespace, o.Name)
	report.Environment, report.Ref = o.Spec.Report.Environment, o.Spec.Ref.Branch
	if d := n.report.Deployment; d != nil && d.Commit == report.Commit && d.Environment == report.Environment {
		report.Deployment = d.ID
	}
	id, err := forge.Send(ctx, to.remote, to.repository, to.credentials, report)
	if id != 0 {
		n.report.Deployment = &runnerapi.ForgeDeployment{ID: id, Commit: report.Commit, Environment: report.Environment}
	}
	if err != nil {
		return err
	}
	s := &n.report
	if s.Commit != report.Commit {
		s.SucceededAt = ""
	}
	s.State, s.Commit, s.Description, s.URL, s.SentAt = report.State, report.Commit, report.Description, report.URL, r.stamp()
	if s.State == runnerapi.ReportSuccess && s.SucceededAt == "" {
		s.SucceededAt = s.SentAt
	}
	return nil
}

// urlOf returns where what a source deploys can be seen; "" if that is not known.
func (r *reporter) urlOf(ctx context.Context, o *object) string {
	if o.Spec.Report.EnvironmentURL != "" || o.Spec.Type != runnerapi.SourceApp {
		return o.Spec.Report.EnvironmentURL
	}
	app, err := r.applier.Apps.Get(ctx, appKey(o))
	if err != nil || len(app.Status.PublicURLs) == 0 {
		return ""
	}
	return app.Status.PublicURLs[0]
}

// SetPages sets the function that returns the URL of the page about an App, for reports to forges.
// Without an App, the page is that about the agent.
func (k *Keeper) SetPages(page func(app runnerapi.Key) string) { k.reporter.page.Store(&page) }

// pageOf returns the page about what a source brings; empty until it is known.
func (r *reporter) pageOf(o *object) string {
	page := r.page.Load()
	switch {
	case page == nil:
		return ""
	case o.Spec.Type != runnerapi.SourceApp:
		return (*page)(runnerapi.Key{})
	}
	return (*page)(appKey(o))
}

// keep writes into the source's status what the forge has accepted, also while the agent stops.
func (r *reporter) keep(ctx context.Context, n news) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keepPatience)
	defer cancel()
	o := n.source
	if r.writes.Lock(ctx, o.key().String()) != nil {
		return
	}
	defer r.writes.Unlock(o.key().String())
	if !r.keepHere(n) {
		return
	}
	err := r.patch(ctx, o, n.report)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsInvalid(err) { // the source is gone, or another one
		r.log.Warn().Err(err).Stringer("source", o.key()).Msg("failed to write what the forge has accepted; the next status has it")
	}
}

// keepHere reports whether the source is still that of the news.
func (r *reporter) keepHere(n news) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, there := r.news[n.source.key()]
	if !there || now.source.UID != n.source.UID {
		return false
	}
	now.report, now.failures = n.report, n.failures
	r.news[n.source.key()] = now
	return true
}

func (r *reporter) patch(ctx context.Context, o *object, s runnerapi.SourceReportStatus) error {
	api, err := r.cluster.client()
	if err != nil {
		return err
	}
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/metadata/uid", "value": o.UID}, {"op": "add", "path": "/status/report", "value": s},
	})
	if err != nil {
		return err
	}
	_, err = api.objects.Resource(resource).Namespace(o.Namespace).
		Patch(ctx, o.Name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: objectmeta.FieldManager}, "status")
	return err
}
