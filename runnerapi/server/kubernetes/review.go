package kubernetes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// maxRules bounds the answer to a SelfSubjectRulesReview, in bytes.
const maxRules = 4 << 20

// selfReview is such a review, and the request that it is about.
type selfReview struct {
	access *authorizationv1.SelfSubjectAccessReview
	rules  *authorizationv1.SelfSubjectRulesReview
	about  runnerapi.KubernetesRequest
}

// review answers a review under the policy rule that holds for the namespace in its body. The agent
// itself denies what the policy does not allow. For the rest the API server replies, for the user
// of that rule.
func (a *API) review(w http.ResponseWriter, r *http.Request, i runnerapi.Intent) {
	k := *i.Kubernetes // the guard continues reading the original
	asked, err := readReview(w, r, k)
	if err != nil {
		WriteError(w, r, a.Log, err)
		return
	}
	if asked == nil {
		a.forward(w, r, i.Runner, &k, nil)
		return
	}
	decided, err := a.decideReview(r.Context(), i, asked, &k)
	switch {
	case err != nil:
		WriteError(w, r, a.Log, err)
	case decided:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(asked.object()) // the peer is gone if this fails
	case asked.rules != nil && k.Grant.ReadOnly:
		r = r.Clone(r.Context())
		r.Header.Set("Accept", "application/json")
		r.Header.Del("Accept-Encoding")
		a.forward(w, r, i.Runner, &k, onlyReads)
	default:
		a.forward(w, r, i.Runner, &k, nil)
	}
}

// readReview returns nil for a review that names no request.
func readReview(w http.ResponseWriter, r *http.Request, k runnerapi.KubernetesRequest) (*selfReview, error) {
	asked := &selfReview{}
	var into interface{ Unmarshal([]byte) error }
	switch k.Resource {
	case runnerapi.AccessReviews:
		asked.access = &authorizationv1.SelfSubjectAccessReview{}
		into = asked.access
	case runnerapi.RulesReviews:
		asked.rules = &authorizationv1.SelfSubjectRulesReview{}
		into = asked.rules
	default:
		return nil, nil
	}
	body, err := keepBody(w, r)
	if err != nil {
		return nil, err
	}
	switch err := decodeKubernetes(r.Header.Get("Content-Type"), body, into); {
	case errors.Is(err, errMediaType):
		return nil, problem.New(http.StatusUnsupportedMediaType, problem.BadRequest,
			"send JSON or Kubernetes' protobuf", "the agent cannot read a review of this content type")
	case err != nil:
		return nil, problem.Errorf(problem.BadRequest, "send the object of authorization.k8s.io/v1", "the review cannot be decoded")
	}
	asked.read()
	if asked.about.Verb == "" { // the API server refuses an empty verb
		return nil, nil
	}
	asked.about.Impersonate = k.Impersonate
	if err := guardAgentNamespace(&asked.about, k.AgentNamespace, nil); err != nil {
		return nil, err
	}
	return asked, nil
}

// read finds out which request the review is about. A review of the rules of a namespace counts as
// a read in it.
func (a *selfReview) read() {
	k := &a.about
	if a.rules != nil {
		if k.Namespace = a.rules.Spec.Namespace; k.Namespace != "" {
			k.Verb = "list"
		}
		return
	}
	if on := a.access.Spec.ResourceAttributes; on != nil {
		k.Verb, k.Group, k.Version, k.Namespace = on.Verb, on.Group, on.Version, on.Namespace
		k.Resource, k.Subresource, k.Name = on.Resource, on.Subresource, on.Name
		if resource, sub, found := strings.Cut(on.Resource, "/"); found { // RBAC accepts this form
			k.Resource, k.Subresource = resource, sub
		}
		if listsNamespaces(k) && k.Name != "" && k.Verb != "list" { // as the path of the request has it
			k.Namespace = k.Name
		}
		k.Discovery = k.AsksOfItself()
	}
	if on := a.access.Spec.NonResourceAttributes; on != nil {
		k.Verb, k.Path = on.Verb, on.Path
		k.Discovery = on.Verb == "get" && discovers(strings.Split(strings.Trim(on.Path, "/"), "/"))
	}
}

// decideReview reports whether the policy alone has decided the review. If not, k has the grant of
// the rule under which the API server is to be asked.
func (a *API) decideReview(ctx context.Context, i runnerapi.Intent, asked *selfReview, k *runnerapi.KubernetesRequest) (bool, error) {
	impersonation := asked.about.Verb == "impersonate"
	if impersonation {
		if err := asked.impersonate(); err != nil {
			asked.decide(err)
			return true, nil
		}
	}
	i.Namespace, i.Kubernetes = asked.about.Namespace, &asked.about
	grant, err := a.Policy.KubernetesGrant(i)
	if err != nil && !problem.Is(err, runnerapi.CodePolicyDenied) {
		return false, err
	}
	if err == nil && !impersonation {
		asked.about.Grant = grant
		err = a.guardAllNamespaces(ctx, &asked.about)
		if err != nil && !problem.Is(err, runnerapi.CodePolicyDenied) {
			return false, err
		}
	}
	if err != nil || impersonation {
		asked.decide(err)
		return true, nil
	}
	k.Grant = grant
	return false, nil
}

// impersonate turns the review into one about the policy: it asks the API server whether the agent
// may impersonate, and not whether the Runner may.
func (a *selfReview) impersonate() error {
	k := &a.about
	nested := k.Impersonate.User != ""
	k.Impersonate = runnerapi.KubernetesIdentity{}
	k.Verb = "get" // impersonating changes nothing by itself
	switch {
	case nested || k.Name == "" || k.Group != "":
	case k.Resource == "users":
		k.Impersonate.User = k.Name
		return nil
	case k.Resource == "groups":
		k.Impersonate.Groups = []string{k.Name}
		return nil
	}
	return runnerapi.PolicyDenied("ask about users/NAME or groups/NAME", "a policy allows to impersonate users and groups by name alone")
}

// decide writes the policy's decision as the answer.
func (a *selfReview) decide(err error) {
	reason := ""
	if known, ok := errors.AsType[*runnerapi.Error](err); ok {
		reason = kubernetesMessage(known)
	}
	if a.access != nil {
		a.access.Status = authorizationv1.SubjectAccessReviewStatus{Allowed: err == nil, Denied: err != nil, Reason: reason}
		return
	}
	a.rules.Status = authorizationv1.SubjectRulesReviewStatus{
		ResourceRules: []authorizationv1.ResourceRule{}, NonResourceRules: []authorizationv1.NonResourceRule{}, EvaluationError: reason,
	}
}

// object returns the review as it is sent back, in the same form for every encoding it arrived in.
func (a *selfReview) object() any {
	if a.access != nil {
		a.access.APIVersion, a.access.Kind = authorizationv1.SchemeGroupVersion.String(), "SelfSubjectAccessReview"
		return a.access
	}
	a.rules.APIVersion, a.rules.Kind = authorizationv1.SchemeGroupVersion.String(), "SelfSubjectRulesReview"
	return a.rules
}

// onlyReads removes rules that allow changes from the API server's answer.
func onlyReads(resp *http.Response) error {
	if resp.StatusCode != http.StatusCreated {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxRules+1))
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return err
	}
	var review authorizationv1.SelfSubjectRulesReview
	if len(text) > maxRules || json.Unmarshal(text, &review) != nil {
		return problem.Errorf(problem.Unavailable, "ask about one resource: kubectl auth can-i VERB RESOURCE",
			"the API server's list of rules cannot be read")
	}
	review.Status.ResourceRules = readingRules(review.Status.ResourceRules)
	for n := range review.Status.NonResourceRules {
		rule := &review.Status.NonResourceRules[n]
		rule.Verbs = reading(rule.Verbs, "get", "head")
	}
	if text, err = json.Marshal(review); err != nil {
		return err
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	resp.Header.Set("Content-Length", strconv.Itoa(len(text)))
	return nil
}

func readingRules(rules []authorizationv1.ResourceRule) []authorizationv1.ResourceRule {
	kept := []authorizationv1.ResourceRule{}
	for _, rule := range rules {
		if !selfReviews(rule) {
			rule.Verbs = reading(rule.Verbs, "get", "list", "watch")
			rule.Resources = slices.DeleteFunc(rule.Resources, func(r string) bool {
				_, sub, _ := strings.Cut(r, "/")
				return slices.Contains(runnerapi.ConnectSubresources, sub)
			})
		}
		if len(rule.Verbs) > 0 && len(rule.Resources) > 0 {
			kept = append(kept, rule)
		}
	}
	return kept
}

// selfReviews reports whether a rule allows only reviews about oneself.
func selfReviews(rule authorizationv1.ResourceRule) bool {
	return len(rule.Resources) > 0 && !slices.ContainsFunc(rule.Resources, func(r string) bool {
		return r != runnerapi.AccessReviews && r != runnerapi.RulesReviews && r != runnerapi.SubjectReviews
	})
}

// reading returns those of the verbs that change nothing.
func reading(verbs []string, all ...string) []string {
	if slices.Contains(verbs, "*") {
		return all
	}
	return slices.DeleteFunc(verbs, func(v string) bool { return !slices.Contains(all, v) })
}
