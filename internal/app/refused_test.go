package app_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

const brokenWebhook = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: NAME}
webhooks:
- name: guard.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  timeoutSeconds: 1
  clientConfig: {url: "https://127.0.0.1:1/"}
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAME}}
  rules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}]
`

const denyingPolicy = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: NAME}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}]
  validations: [{expression: "false", message: no deployments today}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: NAME}
spec: {policyName: NAME, validationActions: [Deny], matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAME}}}}
`

// TestAdmission_NamesRefuser has a webhook that is down, and a policy, keep an App from being
// made.
func TestAdmission_NamesRefuser(t *testing.T) {
	suite.Release(t, "workloads that a webhook or a policy of the cluster's refuses")
	t.Parallel()
	env := kubetest.ControlPlane(t)
	for name, c := range map[string]struct{ manifest, message, fix string }{
		"webhook": {brokenWebhook, "webhook guard.example.com of the cluster does not answer", "bring webhook guard.example.com back"},
		"policy":  {denyingPolicy, "no deployments today", "what policy NAME names"},
		"webhook of revisions": {
			strings.ReplaceAll(brokenWebhook, "deployments", "controllerrevisions"),
			"webhook guard.example.com of the cluster does not answer", "bring webhook guard.example.com back",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := ownNamespace(t, env)
			manifest := strings.ReplaceAll(c.manifest, "NAME", ns)
			applied(t, env, manifest)
			e, _ := start(t, env, ns, nil)
			k := key(ns, "kept-out")
			var a runnerapi.App
			n := 0
			eventually(t, "the refusal is told", func() bool { // what the cluster enforces it knows a moment later
				if n++; n%20 == 1 {
					_ = e.Delete(t.Context(), k, byTest)
					deploy(t, e, k, web())
				}
				var err error
				a, err = e.Get(t.Context(), k)
				return err == nil && a.Status.Diagnosis != nil
			})
			d := a.Status.Diagnosis
			assert.Equal(t, runnerapi.CauseAdmissionRefused, d.Cause, d.Message)
			assert.Contains(t, d.Message, c.message)
			assert.Contains(t, d.Fix, strings.ReplaceAll(c.fix, "NAME", ns))
		})
	}
}

// applied applies manifests until the test ends.
func applied(t *testing.T, env *kubetest.Env, manifest string) (remove func()) {
	t.Helper()
	kubectl := func(ctx context.Context, verb ...string) {
		cmd := env.Cluster.KubectlCommand(ctx, append(verb, "-f", "-")...)
		cmd.Stdin = strings.NewReader(manifest)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
	}
	kubectl(t.Context(), "apply")
	remove = sync.OnceFunc(func() { kubectl(context.Background(), "delete", "--ignore-not-found") })
	t.Cleanup(remove)
	return remove
}

const frozenApps = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: NAME}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [pipeops.io], apiVersions: ["*"], operations: [UPDATE], resources: [apps]}]
  validations: [{expression: "false", message: no changes today}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: NAME}
spec: {policyName: NAME, validationActions: [Deny], matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAME}}}}
`

// TestAdmission_RefusesMark refuses the agent's finalizer: when it is added, and when it is
// removed.
func TestAdmission_RefusesMark(t *testing.T) {
	suite.Release(t, "an App that a policy of the cluster's freezes")
	t.Parallel()
	env := kubetest.ControlPlane(t)
	ns := ownNamespace(t, env)
	e, _ := start(t, env, ns, nil)
	leaving := key(ns, "leaving")
	deploy(t, e, leaving, web())
	remove := applied(t, env, strings.ReplaceAll(frozenApps, "NAME", ns))
	var a runnerapi.App
	n := 0
	eventually(t, "an App that kubectl made says why it is left alone", func() bool {
		k := key(ns, fmt.Sprintf("unmarked-%d", n))
		if !exists(t, env, k, &v1alpha1.App{}) {
			require.NoError(t, env.Client.Create(t.Context(), &v1alpha1.App{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: k.Name}, Spec: web()}))
			return false
		}
		var err error
		a, err = e.Get(t.Context(), k)
		if err != nil || a.Status.Phase == "" || a.Status.ObservedGeneration == 0 {
			return false
		}
		n++ // the policy is known a moment after it was made
		return a.Status.Diagnosis != nil
	})
	assert.Equal(t, runnerapi.CauseAdmissionRefused, a.Status.Diagnosis.Cause)
	assert.Contains(t, a.Status.Diagnosis.Message, "no changes today")

	deleting(t, e, leaving)
	heldBy(t, e, leaving, "the cluster to let the agent take it down", "no changes today", ns)
	remove()
	isGone(t, e, leaving)
}

func TestReconcile_ReportsLastingError(t *testing.T) {
	t.Parallel()
	env := kubetest.ControlPlane(t)
	ns := ownNamespace(t, env)
	var refusals, ahead atomic.Int64
	var cured atomic.Bool
	config := limitedTo(env, ns)
	config.RESTConfig = rest.CopyConfig(config.RESTConfig)
	config.RESTConfig.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transport(func(req *http.Request) (*http.Response, error) {
			if cured.Load() || req.Method != http.MethodPost || !strings.HasSuffix(req.URL.Path, "/controllerrevisions") {
				return next.RoundTrip(req)
			}
			refusals.Add(1)
			return &http.Response{
				StatusCode: http.StatusServiceUnavailable, Header: http.Header{"Content-Type": {"application/json"}}, Request: req,
				Body: io.NopCloser(strings.NewReader(
					`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"ServiceUnavailable","message":"etcd is away","code":503}`)),
			}, nil
		})
	})
	e, _ := startWith(t, config, func(e *app.Engine) {
		e.Clock(func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) })
	})
	k := key(ns, "held-up")
	deploy(t, e, k, web())
	eventually(t, "it is tried again", func() bool { return refusals.Load() >= 3 })
	a, err := e.Get(t.Context(), k)
	require.NoError(t, err)
	assert.Nil(t, a.Status.Diagnosis, "it may pass by itself")
	ahead.Store(int64(2 * time.Minute))
	eventually(t, "it is told", func() bool {
		a, err = e.Get(t.Context(), k)
		return err == nil && a.Status.Diagnosis != nil
	})
	assert.Contains(t, a.Status.Diagnosis.Message, "the agent cannot look after the App since ")
	assert.Contains(t, a.Status.Diagnosis.Message, "etcd is away")
	assert.NotEmpty(t, a.Status.Diagnosis.Fix)
	cured.Store(true)
	eventually(t, "it is over", func() bool {
		a, err = e.Get(t.Context(), k)
		return err == nil && a.Status.Diagnosis == nil && a.Status.Revision == 1
	})
}
