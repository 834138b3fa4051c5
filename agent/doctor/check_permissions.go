package doctor

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/deployments"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
)

const (
	// maxNamespaces bounds how many managed namespaces are looked into.
	maxNamespaces = 5
	// maxReviews bounds how many questions are asked at a time.
	maxReviews = 8
)

// permissions checks each right that the agent's manifest grants, so that there is no second list
// of them.
func (c *cluster) permissions(ctx context.Context) []Finding {
	needed, err := deployments.Granted()
	if err != nil {
		return failure(err, "")
	}
	reviews, err := authorizationv1client.NewForConfig(c.restConfig())
	if err != nil {
		return failure(err, fixCluster)
	}
	findings := c.review(ctx, reviews, "in the cluster", "", needed.Cluster, fixManifest)
	findings = append(findings, c.review(ctx, reviews, "in its own namespace "+c.Config.Namespace, c.Config.Namespace, needed.Own, fixManifest)...)
	findings = append(findings, c.selfUpdate(ctx, reviews)...)
	namespaces, err := c.managedNamespaces(ctx)
	if err != nil {
		return append(findings, failure(fmt.Errorf("list the managed namespaces: %w", err), fixManifest)...)
	}
	if len(namespaces) == 0 {
		findings = append(findings, ok("no namespace is managed yet; `pipeops-runner namespace create` makes one")...)
	}
	for _, ns := range namespaces[:min(len(namespaces), maxNamespaces)] {
		fix := fmt.Sprintf("kubectl -n %s create rolebinding pipeops-agent --clusterrole=pipeops-agent-namespace --serviceaccount=%s:pipeops-agent", ns, c.Config.Namespace)
		findings = append(findings, c.review(ctx, reviews, "in the managed namespace "+ns, ns, needed.Managed, fix)...)
	}
	return findings
}

// selfUpdate checks the rights that an agent in a pod needs to update itself, if that is enabled.
func (c *cluster) selfUpdate(ctx context.Context, reviews authorizationv1client.SelfSubjectAccessReviewsGetter) []Finding {
	if !c.Config.SelfUpdate || c.Config.StateDir != "" {
		return nil
	}
	needed, err := deployments.GrantedForSelfUpdate()
	if err != nil {
		return failure(err, "")
	}
	return c.review(ctx, reviews, "to update itself", c.Config.Namespace, needed.Own,
		"kubectl apply --server-side -f deployments/self-update.yaml; with Helm set selfUpdate.enabled=true")
}

// review asks for each right and returns a finding for each that is missing.
func (c *cluster) review(ctx context.Context, reviews authorizationv1client.SelfSubjectAccessReviewsGetter, where, namespace string, rights []deployments.Grant, fix string) []Finding {
	allowed := make([]bool, len(rights))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxReviews)
	for i, right := range rights {
		group.Go(func() error {
			answer, err := reviews.SelfSubjectAccessReviews().Create(ctx, question(right, namespace), metav1.CreateOptions{})
			if err == nil {
				allowed[i] = answer.Status.Allowed
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return failure(fmt.Errorf("ask for the rights %s: %w", where, err), fixCluster)
	}
	var findings []Finding
	for i, right := range rights {
		if !allowed[i] {
			findings = append(findings, failed("may not "+right.String()+" "+where, fix)...)
		}
	}
	if len(findings) == 0 {
		return ok(fmt.Sprintf("all %d rights %s are granted", len(rights), where))
	}
	return findings
}

func question(r deployments.Grant, namespace string) *authorizationv1.SelfSubjectAccessReview {
	return &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: r.Verb, Group: r.Group, Resource: r.Resource, Subresource: r.Subresource, Name: r.Name,
		},
	}}
}

// managedNamespaces returns those with the agent's mark.
func (c *cluster) managedNamespaces(ctx context.Context) ([]string, error) {
	reader, err := c.reader()
	if err != nil {
		return nil, err
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(namespaceKind.GroupVersion().WithKind(namespaceKind.Kind + "List"))
	if err := reader.List(ctx, list, client.MatchingLabels(objectmeta.Labels()), client.Limit(maxNamespaces)); err != nil {
		return nil, err
	}
	var names []string
	for _, ns := range list.Items {
		if ns.DeletionTimestamp == nil {
			names = append(names, ns.Name)
		}
	}
	return names, nil
}
