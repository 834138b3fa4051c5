// Package build makes images in the cluster: a Job whose pod gets a commit, runs its Dockerfile
// with rootless BuildKit, and pushes the result (docs/adr/0042).
//
// The Jobs are the only state. The agent holds nothing of a build, so another replica, or the agent
// after a restart, reports a build as if it had seen it begin.
package build

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	batchv1client "k8s.io/client-go/kubernetes/typed/batch/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/pipeops/pipeops-vm-agent/internal/egress"
	"github.com/pipeops/pipeops-vm-agent/internal/kubeclient"
	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/signature"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
)

const (
	// Allowed is the label by which the owner of a cluster lets builds run in a namespace.
	Allowed = "pipeops.io/builds"
	// AllowedValue is what it has to be.
	AllowedValue = "allowed"

	nameLabel = "pipeops.io/build"      // on Jobs and pods: the build's name
	specNote  = "pipeops.io/build-spec" // on Jobs: the spec as JSON
)

// Options describe where the agent runs, and the images for builds.
type Options struct {
	Namespace  string   // the agent's own
	Namespaces []string // the only ones that it may manage; empty for all
	Image      string   // BuildKit's, rootless; empty where the operator has named none
	ToolsImage string   // the agent's own, for the steps before and after
	// Guard decides from which hosts and addresses a pod fetches the commit.
	Guard egress.Guard
	// Policy is the cluster owner's; without one, nothing is built for a call.
	Policy Policy
}

// Policy demands signatures of commits.
type Policy interface {
	// Signers returns by whose keys a commit must be signed; nil if it need not be.
	Signers(i runnerapi.Intent) (*signature.Signers, error)
}

// Client implements backend.Builds.
type Client struct {
	opts  Options
	core  corev1client.CoreV1Interface
	batch batchv1client.BatchV1Interface
	// putting lets the PUTs of one agent follow one another: a build runs once at a time.
	putting sync.Mutex
}

var _ backend.Builds = (*Client)(nil)

// New returns a Client. It makes no requests yet.
func New(given *rest.Config, opts Options) (*Client, error) {
	rc, hc, err := kubeclient.New(given)
	if err != nil {
		return nil, err
	}
	core, err := corev1client.NewForConfigAndClient(rc, hc)
	if err != nil {
		return nil, fmt.Errorf("prepare the Kubernetes client: %w", err)
	}
	batch, err := batchv1client.NewForConfigAndClient(rc, hc)
	if err != nil {
		return nil, fmt.Errorf("prepare the Kubernetes client: %w", err)
	}
	return &Client{opts: opts, core: core, batch: batch}, nil
}

// Run implements backend.Builds.
func (c *Client) Run(ctx context.Context, key runnerapi.Key, spec runnerapi.BuildSpec, opts runnerapi.WriteOptions) (runnerapi.Build, error) {
	t, err := c.opts.signedTemplate(key, spec, opts.Caller)
	if err != nil {
		return runnerapi.Build{}, err
	}
	return c.put(ctx, t, key, spec, opts, func(*batchv1.Job) {}, refuse)
}

// signedTemplate makes Jobs whose pods check the signature that the policy demands.
func (o Options) signedTemplate(key runnerapi.Key, spec runnerapi.BuildSpec, by runnerapi.Caller) (t jobTemplate, err error) {
	i := runnerapi.Intent{
		Command: "put-build", Access: runnerapi.Named, Runner: by.Runner, Namespace: key.Namespace, Name: key.Name, Build: &spec,
	}
	if o.Policy == nil {
		return t, backend.DenyAll{}.Decide(i)
	}
	t = o.jobTemplate()
	t.signers, err = o.Policy.Signers(i)
	return t, err
}

// refuse returns what a run meets while another one is in progress.
func refuse(_ context.Context, key runnerapi.Key, _ *batchv1.Job) error { return underWay(key) }

func (c *Client) put(ctx context.Context, t jobTemplate, key runnerapi.Key, spec runnerapi.BuildSpec, opts runnerapi.WriteOptions,
	note func(*batchv1.Job), meet func(context.Context, runnerapi.Key, *batchv1.Job) error,
) (runnerapi.Build, error) {
	if err := c.ready(ctx, key.Namespace, spec); err != nil {
		return runnerapi.Build{}, err
	}
	c.putting.Lock()
	defer c.putting.Unlock()
	runs, err := c.runs(ctx, key)
	if err != nil {
		return runnerapi.Build{}, err
	}
	job, err := t.job(key, spec, opts.Caller)
	if err != nil {
		return runnerapi.Build{}, err
	}
	note(job)
	for i := range runs {
		if runs[i].Name == job.Name {
			return c.describe(ctx, &runs[i])
		}
		if ended(&runs[i]) {
			continue
		}
		if err := meet(ctx, key, &runs[i]); err != nil {
			return runnerapi.Build{}, err
		}
	}
	made, err := c.batch.Jobs(key.Namespace).Create(ctx, job, createOptions(opts))
	if err != nil {
		return runnerapi.Build{}, kubeproblem.From(err, "making the Job of build "+key.String())
	}
	if opts.DryRun {
		return c.describe(ctx, made)
	}
	if err := c.first(ctx, key, made); err != nil {
		return runnerapi.Build{}, err
	}
	if err := c.prune(ctx, runs, cmp.Or(spec.History, runnerapi.DefaultBuildHistory)-1); err != nil {
		return runnerapi.Build{}, err
	}
	return c.describe(ctx, made)
}

func createOptions(opts runnerapi.WriteOptions) metav1.CreateOptions {
	o := metav1.CreateOptions{FieldManager: objectmeta.FieldManager}
	if opts.DryRun {
		o.DryRun = []string{metav1.DryRunAll}
	}
	return o
}

func underWay(key runnerapi.Key) error {
	return problem.Errorf(problem.Busy, "wait until it has ended, or end it: pipeops-runner build delete AGENT "+key.Name,
		"a run of build %s is in progress", key)
}

// first takes a run back that another replica's came before.
func (c *Client) first(ctx context.Context, key runnerapi.Key, made *batchv1.Job) error {
	runs, err := c.runs(ctx, key)
	if err != nil {
		return err
	}
	for i := range runs {
		other := &runs[i]
		if other.UID == made.UID || ended(other) || later(other, made) {
			continue
		}
		if err := c.remove(ctx, made); err != nil {
			return err
		}
		return underWay(key)
	}
	return nil
}

// later reports whether a was made after b; of two of the same second, whose name comes later.
func later(a, b *batchv1.Job) bool {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name)) > 0
}

// prune removes all but the newest of runs that have ended.
func (c *Client) prune(ctx context.Context, runs []batchv1.Job, keep int) error {
	for i := range runs {
		if i >= keep && ended(&runs[i]) {
			if err := c.remove(ctx, &runs[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *Client) remove(ctx context.Context, job *batchv1.Job) error {
	err := c.batch.Jobs(job.Namespace).Delete(ctx, job.Name, metav1.DeleteOptions{
		PropagationPolicy: new(metav1.DeletePropagationBackground), Preconditions: &metav1.Preconditions{UID: &job.UID},
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return kubeproblem.From(err, "deleting Job "+job.Name)
}

// Get implements backend.Builds.
func (c *Client) Get(ctx context.Context, key runnerapi.Key) (runnerapi.Build, error) {
	runs, err := c.found(ctx, key)
	if err != nil {
		return runnerapi.Build{}, err
	}
	build, err := c.describe(ctx, &runs[0])
	if err != nil {
		return build, err
	}
	pods, err := c.podsOf(ctx, key.Namespace, nameLabel+"="+key.Name)
	if err != nil {
		return build, err
	}
	for i := range runs[1:] {
		build.Before = append(build.Before, short(&runs[i+1], newestOf(pods, runs[i+1].Name)))
	}
	return build, nil
}

// List implements backend.Builds.
func (c *Client) List(ctx context.Context, namespace string) ([]runnerapi.Build, error) {
	if _, err := c.admit(ctx, namespace); err != nil {
		return nil, err
	}
	jobs, err := c.jobs(ctx, namespace, nameLabel)
	if err != nil {
		return nil, err
	}
	pods, err := c.podsOf(ctx, namespace, nameLabel)
	if err != nil {
		return nil, err
	}
	var builds []runnerapi.Build
	seen := map[string]bool{}
	for i := range jobs { // the newest first
		name := jobs[i].Labels[nameLabel]
		if !seen[name] {
			seen[name] = true
			builds = append(builds, c.build(&jobs[i], newestOf(pods, jobs[i].Name)))
		}
	}
	slices.SortFunc(builds, func(a, b runnerapi.Build) int { return cmp.Compare(a.Name, b.Name) })
	return builds, nil
}

// Delete implements backend.Builds.
func (c *Client) Delete(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) error {
	runs, err := c.found(ctx, key)
	if err != nil || opts.DryRun {
		return err
	}
	if late, err := opts.Late(ctx); late || err != nil {
		return err
	}
	for i := range runs { // those of then, by their UIDs: a run that came meanwhile continues
		if err := c.remove(ctx, &runs[i]); err != nil {
			return err
		}
	}
	return nil
}

// found returns the runs of a build that is there, the newest first.
func (c *Client) found(ctx context.Context, key runnerapi.Key) ([]batchv1.Job, error) {
	if _, err := c.admit(ctx, key.Namespace); err != nil {
		return nil, err
	}
	runs, err := c.runs(ctx, key)
	if err == nil && len(runs) == 0 {
		err = problem.Errorf(problem.NotFound, "see which there are: pipeops-runner build list AGENT; finished ones are removed after a time", "there is no build %s", key)
	}
	return runs, err
}

func (c *Client) runs(ctx context.Context, key runnerapi.Key) ([]batchv1.Job, error) {
	return c.jobs(ctx, key.Namespace, nameLabel+"="+key.Name)
}

// jobs returns those that are not being deleted, the newest first. A Job that another controller
// made, such as a CronJob's, is no run of a build.
func (c *Client) jobs(ctx context.Context, namespace, selector string) ([]batchv1.Job, error) {
	list, err := c.batch.Jobs(namespace).List(ctx, metav1.ListOptions{LabelSelector: objectmeta.ManagedBy + "=" + objectmeta.ManagedByAgent + "," + selector})
	if err != nil {
		return nil, kubeproblem.From(err, "reading the builds of namespace "+namespace)
	}
	jobs := slices.DeleteFunc(list.Items, func(j batchv1.Job) bool { return j.DeletionTimestamp != nil || metav1.GetControllerOf(&j) != nil })
	slices.SortFunc(jobs, func(a, b batchv1.Job) int {
		if later(&a, &b) {
			return -1
		}
		return 1
	})
	return jobs, nil
}

func (c *Client) podsOf(ctx context.Context, namespace, selector string) ([]corev1.Pod, error) {
	list, err := c.core.Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: objectmeta.ManagedBy + "=" + objectmeta.ManagedByAgent + "," + selector})
	if err != nil {
		return nil, kubeproblem.From(err, "reading the pods of builds")
	}
	return list.Items, nil
}

// newestOf returns the newest pod of a Job, or nil.
func newestOf(pods []corev1.Pod, job string) *corev1.Pod {
	var newest *corev1.Pod
	for i := range pods {
		if pods[i].Labels[batchv1.JobNameLabel] == job && (newest == nil || newest.CreationTimestamp.Before(&pods[i].CreationTimestamp)) {
			newest = &pods[i]
		}
	}
	return newest
}

// runID identifies a run: the same spec with the same run name is the same run.
func runID(spec runnerapi.BuildSpec) (string, []byte, error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return "", nil, fmt.Errorf("encode the spec: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:5]), text, nil
}
