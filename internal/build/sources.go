package build

import (
	"context"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/admission"
	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// sourceNote is on Jobs that were started for a source: its NAMESPACE/NAME. An owner reference
// cannot express that, since the source is in another namespace.
const sourceNote = "pipeops.io/build-source"

// Supersede is like Run, and first ends a run in progress, which would otherwise block the new
// one. It records the run's source, which has checked the commit's signature.
func (c *Client) Supersede(ctx context.Context, source, key runnerapi.Key, spec runnerapi.BuildSpec, opts runnerapi.WriteOptions) (runnerapi.Build, error) {
	note := func(job *batchv1.Job) { job.Annotations[sourceNote] = source.String() }
	return c.put(ctx, c.opts.jobTemplate(), key, spec, opts, note, func(ctx context.Context, _ runnerapi.Key, other *batchv1.Job) error {
		if opts.DryRun {
			return nil
		}
		return c.remove(ctx, other)
	})
}

// OfSources returns the builds that were begun for sources, in all namespaces for builds that the
// agent manages, with the source of each.
func (c *Client) OfSources(ctx context.Context) (map[runnerapi.Key]runnerapi.Key, error) {
	namespaces, err := c.namespaces(ctx)
	if err != nil {
		return nil, err
	}
	of := map[runnerapi.Key]runnerapi.Key{}
	for _, namespace := range namespaces {
		jobs, err := c.jobs(ctx, namespace, nameLabel)
		if err != nil {
			return nil, err
		}
		for i := range jobs {
			in, name, ok := strings.Cut(jobs[i].Annotations[sourceNote], "/")
			if ok {
				of[runnerapi.Key{Namespace: namespace, Name: jobs[i].Labels[nameLabel]}] = runnerapi.Key{Namespace: in, Name: name}
			}
		}
	}
	return of, nil
}

// namespaces returns those for builds that the agent manages.
func (c *Client) namespaces(ctx context.Context) (names []string, err error) {
	scope := c.scope()
	if len(scope.Only) > 0 { // it may list none
		for _, name := range scope.Only {
			ns, ok, err := admission.Manages(ctx, scope, name, c.readNamespace)
			if err != nil {
				return nil, kubeproblem.From(err, "reading namespace "+name)
			}
			if ok && ns.Labels[Allowed] == AllowedValue {
				names = append(names, name)
			}
		}
		return names, nil
	}
	list, err := c.core.Namespaces().List(ctx, metav1.ListOptions{LabelSelector: Allowed + "=" + AllowedValue})
	if err != nil {
		return nil, kubeproblem.From(err, "listing the namespaces for builds")
	}
	for i := range list.Items {
		if scope.Manages(&list.Items[i]) {
			names = append(names, list.Items[i].Name)
		}
	}
	return names, nil
}
