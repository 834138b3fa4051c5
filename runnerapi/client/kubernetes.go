package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// maxReview bounds the answer to a review, in bytes.
const maxReview = 64 << 10

// Kubernetes are the calls about the Kubernetes API, to which kubectl and client-go connect.
type Kubernetes struct{ *core }

// Refusal returns why the policy does not let this Runner use the Kubernetes API in a
// namespace. It returns an empty string if the policy does; RBAC may still refuse requests.
func (k Kubernetes) Refusal(ctx context.Context, namespace string) (string, error) {
	ctx, _ = withTry(ctx)
	review := authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "get", Resource: "pods"},
	}}
	req, err := k.request(ctx, &request{
		call: runnerapi.KubernetesCall, method: http.MethodPost, body: review,
		path: "/v1/kubernetes/apis/authorization.k8s.io/v1/" + runnerapi.AccessReviews,
	})
	if err != nil {
		return "", err
	}
	resp, err := k.calls.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxReview))
	if err != nil {
		return "", err
	}
	var status metav1.Status
	switch {
	case resp.StatusCode == http.StatusCreated && json.Unmarshal(text, &review) == nil:
		if review.Status.Denied {
			return review.Status.Reason, nil
		}
		return "", nil
	case resp.StatusCode == http.StatusForbidden && json.Unmarshal(text, &status) == nil:
		return status.Message, nil
	}
	return "", fmt.Errorf("agent %s: the review was not answered: %s", k.config.AgentID, resp.Status)
}
