package agent_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/deployments"
	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/internal/app/sizing"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

// before are lines that have a call do all that it can before its example: what
// the example alone would not come to.
func before(c runnerapi.Call) []string {
	const deploy = "pipeops-runner deploy shop "
	image := " --image " + harness.ExampleImage
	switch c.Method + " " + c.Path {
	case "GET /v1/namespaces/{namespace}": // bounds that are no longer named go
		return []string{
			"pipeops-runner namespace create shop staging --quota pods=5 --default cpu=10m",
			"pipeops-runner namespace create shop staging --network open",
		}
	case "DELETE /v1/namespaces/{namespace}": // Apps go before their namespace
		return []string{deploy + "inner -n staging --no-wait" + image}
	case "PUT /v1/namespaces/{namespace}/apps/{name}":
		lines := []string{
			deploy + "every-night --type CronJob --schedule '0 3 * * *' --dry-run" + image,
			deploy + "everywhere --type DaemonSet --dry-run" + image,
			deploy + "once --type Job --dry-run" + image,
			deploy + "named --type StatefulSet --dry-run" + image,
			deploy + "-f full.yaml --dry-run",
		}
		for i := range 2 { // the second revision of the one that is kept
			lines = append(lines, fmt.Sprintf("%s-f full.yaml --env N=%d", deploy, i))
		}
		// and what new content does to Apps that asked for it
		return append(lines, "pipeops-runner secret set shop full --from-literal A=2", "pipeops-runner configmap set shop full --from-literal B=2")
	case "POST /v1/apply": // what leaves a set goes
		return []string{`echo '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"leaves"}}' | pipeops-runner apply shop -f - --applyset web-extras`}
	case "PUT /v1/namespaces/{namespace}/releases/{name}": // more revisions than are kept
		const dry = "pipeops-runner helm deploy shop guide --chart ./guide --set greeting=hello --dry-run"
		lines := []string{dry} // whose lock goes with it
		for i := range 6 {
			lines = append(lines, fmt.Sprintf("pipeops-runner helm deploy shop guide --chart ./guide --set greeting=%d", i))
		}
		return lines
	case "POST /v1/namespaces/{namespace}/releases/{name}/rollback": // to one that is there
		const other, back = "pipeops-runner helm deploy shop other --chart ./guide", "pipeops-runner helm rollback shop other"
		return []string{
			"pipeops-runner helm delete shop guide", "pipeops-runner helm deploy shop guide --chart ./guide",
			other, other, back, back, back, back, "pipeops-runner helm delete shop other",
		}
	case "PUT /v1/namespaces/{namespace}/builds/{name}": // a run that ends, and is more than is kept when the next one comes
		return []string{c.Example + " --wait || test $? = 3"}
	case "GET /v1/namespaces/{namespace}/builds/{name}", "GET /v1/namespaces/{namespace}/builds/{name}/logs": // one in progress, then one that has failed
		return []string{"pipeops-runner build delete shop web", strings.Replace(before(buildCall())[0], "build-1742", "build-1743", 1)}
	case "GET /v1/namespaces/{namespace}/apps/{name}/logs": // also what Loki has
		return []string{"pipeops-runner logs shop web --since 24h"}
	case "POST /v1/namespaces/{namespace}/apps/{name}/restart": // a key that is used again, and a command that is refused
		return []string{
			"pipeops-runner restart shop web --idempotency-key once", "pipeops-runner restart shop web --idempotency-key once",
			"pipeops-runner restart shop nowhere || test $? = 4",
		}
	case "POST /v1/namespaces/{namespace}/apps/{name}/rollback": // to something else than what is
		return []string{deploy + "web --env LOG=debug" + image}
	}
	return nil
}

// buildCall is the call that starts a build.
func buildCall() runnerapi.Call {
	calls := runnerapi.Calls()
	return calls[slices.IndexFunc(calls, func(c runnerapi.Call) bool { return c.ID == "put-build" })]
}

// full.yaml asks for everything that stands beside a workload.
const full = `apiVersion: pipeops.io/v1alpha1
kind: App
metadata: {name: full}
spec:
  image: ` + harness.ExampleImage + `
  ports: [{port: 8080}]
  probes: {readiness: {http: {path: /readyz, port: 8080}, periodSeconds: 1}}
  ingress: {hosts: [{host: full.example.com}]}
  autoscaling: {min: 1, max: 2}
  disruption: {maxUnavailable: "1"}
  envFrom: [{secret: full}, {configMap: full}]
  restartOn: [secrets, configMaps]
  revisionHistoryLimit: 1
`

// undone.yaml takes back what fails.
const undone = `apiVersion: pipeops.io/v1alpha1
kind: App
metadata: {name: undone}
spec:
  image: ` + harness.ExampleImage + `
  rollback: onFailure
`

// exercise has the agent do everything that it does without being called.
func (s *shop) exercise(t *testing.T) {
	image := " --image " + harness.ExampleImage
	for _, line := range []string{
		// what an App does not ask for any more goes
		"pipeops-runner deploy shop full --replicas 1" + image,
		"pipeops-runner deploy shop named --type StatefulSet" + image,
		"pipeops-runner deploy shop everywhere --type DaemonSet" + image,
		"pipeops-runner deploy shop every-night --type CronJob --schedule '0 3 * * *'" + image,
		// a Job that is run again
		"pipeops-runner deploy shop once --type Job" + image + " -- -crash-after 100ms -exit-code 0",
		"pipeops-runner deploy shop once --type Job" + image + " -- -crash-after 200ms -exit-code 0",
		// a StatefulSet's pod that is broken, and its repair
		"pipeops-runner deploy shop named --type StatefulSet --image registry.invalid/web:1 || test $? = 3",
		"pipeops-runner deploy shop named --type StatefulSet" + image,
		// a rollout that fails and is taken back
		"pipeops-runner deploy shop -f undone.yaml" + image,
		"pipeops-runner deploy shop -f undone.yaml --image registry.invalid/web:1 || test $? = 3",
		// pods that are refused, of which a StatefulSet tells in events alone
		"pipeops-runner namespace create shop tight --quota pods=0",
		"pipeops-runner deploy shop refused -n tight --type StatefulSet" + image + " || test $? = 3",
		"pipeops-runner namespace delete shop tight --yes",
	} {
		s.run(t, line)
	}
	for _, name := range []string{"full", "named", "everywhere", "every-night", "once", "undone"} {
		s.run(t, "pipeops-runner delete shop "+name)
	}
	for _, kind := range []string{"deployments", "statefulsets", "daemonsets", "cronjobs", "jobs"} {
		await.Until(t, kind+" are gone", func() bool {
			out, err := s.env.Cluster.Kubectl(t.Context(), "-n", "production", "get", kind, "-o", "name")
			return err == nil && len(out) == 0
		})
	}
	s.run(t, "pipeops-runner deploy shop sized --cpu 200m --right-sizing apply"+image)
	s.rightSize(t)
}

// rightSize continues with an App engine that measures faster than the agent's.
func (s *shop) rightSize(t *testing.T) {
	s.agent.stop()
	e, err := app.New(app.Config{
		RESTConfig: s.rec.config(s.env.Agent), Namespace: kubetest.AgentNamespace, Log: zerolog.Nop(),
		Sizing: sizing.Timing{Every: time.Second, MinSamples: 1},
	})
	require.NoError(t, err)
	defer await.Background(t, "the App engine", e.Run)()
	require.Eventually(t, func() bool {
		events, err := s.env.Cluster.Kubectl(t.Context(), "-n", "production", "get", "events", "--field-selector", "reason=RightSized", "-o", "name")
		return err == nil && len(events) > 0
	}, examplePatience, 200*time.Millisecond, "the App's pod is resized")
}

// compare holds what was asked of the API server against what rights.go says.
func (s *shop) compare(t *testing.T) {
	byCall := map[string]map[string]bool{}
	upkeep := map[string]bool{} // what is wanted, and what was seen
	for _, c := range runnerapi.Calls() {
		call := c.Method + " " + c.Path
		seen := map[string]bool{}
		for _, u := range s.rec.of(call) {
			switch {
			case u.namespace == kubetest.AgentNamespace && !strings.HasPrefix(c.Path, "/v1/operations") && c.Path != "/v1/audit":
				upkeep[u.right()] = true // notes of what was sent, and the key for them
			case strings.Contains(c.Path, "/releases") && u.resource == "services":
				// what the chart brings; its rights are not the agent's business
			default:
				seen[u.right()] = true
			}
		}
		if c.ID == "" {
			assert.Empty(t, seen, call)
			continue
		}
		byCall[c.ID] = seen
	}
	for _, u := range s.rec.of("") {
		upkeep[u.right()] = true
		if u.verb == "watch" { // a list, which older clusters send, goes by the same stream
			upkeep[use{verb: "list", resource: u.resource, namespace: u.namespace}.right()] = true
		}
	}
	var want []deployments.Right
	for _, u := range deployments.Upkeeps() {
		want = append(want, u.Rights...)
	}
	for _, asked := range texts(deployments.Asked().Rights) {
		upkeep[asked] = true
	}
	// A build for a Git repository has its log read when it fails: internal/build has a builder. So
	// has an init container that hangs.
	upkeep["get pods/log"] = true
	// Kubernetes' garbage collector may delete what a deleted App owned before the agent does.
	for _, kind := range []string{"statefulsets.apps", "daemonsets.apps", "cronjobs.batch"} {
		upkeep["delete "+kind] = true
	}
	// On a test's machine the agent reaches the pods' ports itself: internal/app has a pod that it
	// does not.
	upkeep["get pods/portforward"] = true
	// The cluster lacks the Gateway API, so that it is asked for and not watched: internal/app has
	// one with it.
	for _, kind := range []string{"httproutes", "referencegrants", "gateways", "gatewayclasses"} {
		upkeep["watch "+kind+".gateway.networking.k8s.io"] = true
	}
	for _, kind := range []string{"httproutes", "gateways", "gatewayclasses"} {
		upkeep["patch "+kind+".gateway.networking.k8s.io/status"] = true
	}
	// The checks of a running agent ask what it may do. Kubernetes lets everyone ask
	// (system:basic-user).
	delete(upkeep, "create selfsubjectaccessreviews.authorization.k8s.io")
	assert.Equal(t, texts(want), slices.Sorted(maps.Keys(upkeep)), "upkeep")
	assert.ElementsMatch(t, slices.Collect(maps.Keys(byCall)), slices.Collect(maps.Keys(deployments.Calls())))
	for call, rights := range deployments.Calls() {
		for _, right := range texts(rights) {
			if byTiming(call, right) && upkeep[right] {
				byCall[call][right] = true
			}
		}
		assert.Equal(t, texts(rights), slices.Sorted(maps.Keys(byCall[call])), call)
	}
}

// byTiming says whether a call needs a right at some times only. Whoever comes first keeps an App's
// revision, the call or the reconciler. What was applied is looked into only while it is not well.
func byTiming(call, right string) bool {
	if strings.HasSuffix(right, " controllerrevisions.apps") {
		return true
	}
	looksInto := []string{"list pods", "list replicasets.apps", "list events"}
	return slices.Contains([]string{runnerapi.ApplyCall, "get-set", "delete-set"}, call) && slices.Contains(looksInto, right)
}

// right is what a use needs.
func (u use) right() string {
	if u.namespace == kubetest.AgentNamespace {
		return u.verb + " " + u.resource + ", its own"
	}
	return u.verb + " " + u.resource
}

// texts are rights in the form of right, each once.
func texts(rights []deployments.Right) []string {
	out := map[string]bool{}
	for _, r := range rights {
		for _, verb := range r.Verbs {
			u := use{verb: verb, resource: r.Resource}
			if r.Own {
				u.namespace = kubetest.AgentNamespace
			}
			out[u.right()] = true
		}
	}
	return slices.Sorted(maps.Keys(out))
}

// prepare writes the files and the objects that the lines of before need.
func (s *shop) prepare(t *testing.T) {
	for name, text := range map[string]string{"full.yaml": full, "undone.yaml": undone} {
		require.NoError(t, os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600))
	}
	require.NoError(t, harness.ExampleFiles(s.dir))
	_, err := s.env.Cluster.Kubectl(t.Context(), "label", "namespace", "production", "pipeops.io/builds=allowed")
	require.NoError(t, err)
	s.run(t, "pipeops-runner secret set shop full --from-literal A=1")
	s.run(t, "pipeops-runner configmap set shop full --from-literal B=1")
}
