package policy_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/policy"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/problemtest"
)

const rules = `
rules:
  - name: no secrets for bots
    deny: true
    runners: [bot-*]
    commands: ["*-secret*"]
  - name: shop
    runners: [ci, bot-*]
    namespaces: [shop, shop-*]
    images: [registry.example.com/shop, docker.io/library/nginx]
    maxReplicas: 5
    maxResources: {cpu: "2", memory: 1Gi}
  - name: operators
    runners: [ops]
    commands: ["*", exec-app, apply-manifests]
    kinds: [ConfigMap, Deployment.apps]
  - name: look
    namespaces: ["*"]
    commands: [read]
`

func load(t *testing.T, text string) *policy.Policy {
	t.Helper()
	doc, err := policy.Parse([]byte(text))
	require.NoError(t, err)
	p := policy.New("policy.yaml")
	p.Set(doc, nil)
	return p
}

func intent(runner, command, namespace string) runnerapi.Intent {
	return runnerapi.Intent{Command: command, Access: policy.Commands()[command], Runner: runner, Namespace: namespace}
}

func deploy(change func(*runnerapi.AppSpec)) runnerapi.Intent {
	i := intent("ci", "put-app", "shop")
	i.App = &runnerapi.AppSpec{Image: "registry.example.com/shop/web:1"}
	i.App.Resources.Limits = runnerapi.ResourceAmounts{CPU: "1", Memory: "512Mi"}
	change(i.App)
	return i
}

func TestPolicy_FirstMatchWins(t *testing.T) {
	p := load(t, rules)
	for name, c := range map[string]struct {
		intent runnerapi.Intent
		rule   string // empty where it is refused
		says   string
	}{
		"allowed":                      {intent("ci", "restart-app", "shop-staging"), "shop", ""},
		"another namespace":            {intent("ci", "restart-app", "theirs"), "", "no rule of the customer's policy allows Runner ci to do restart-app in namespace theirs"},
		"another Runner":               {intent("dev", "restart-app", "shop"), "", "no rule"},
		"reading is for all":           {intent("dev", "get-app", "theirs"), "look", ""},
		"of no namespace":              {intent("dev", "list-apps", ""), "look", ""},
		"of no namespace, a write":     {intent("ci", "put-namespace", ""), "", "not about one namespace"},
		"denied":                       {intent("bot-1", "put-secret", "shop"), "", `rule "no secrets for bots"`},
		"denied, list":                 {intent("bot-1", "list-secrets", "shop"), "", `rule "no secrets for bots"`},
		"not denied":                   {intent("bot-1", "put-app", "shop"), "shop", ""},
		"no wildcard for exec":         {intent("ci", "exec-app", "shop"), "", "no rule"},
		"exec by name":                 {intent("ops", "exec-app", "shop"), "operators", ""},
		"the Kubernetes API, unnamed":  {intent("ops", "kubernetes-api", ""), "", "no rule"},
		"adopting, unnamed":            {intent("ops", "adopt-namespace", "theirs"), "", "no rule"},
		"a name is not a prefix":       {intent("cis", "restart-app", "shop"), "", "no rule"},
		"a namespace is not a prefix":  {intent("ci", "restart-app", "shopping"), "", "no rule"},
		"nobody":                       {intent("", "restart-app", "shop"), "", "no rule"},
		"a command that nobody knows":  {intent("ops", "dance", "shop"), "operators", ""},
		"without access no call is":    {runnerapi.Intent{Command: "x", Access: runnerapi.Named, Runner: "ops"}, "", "no rule"},
		"a pattern in a Runner's name": {intent("*", "restart-app", "shop"), "", "no rule"},
	} {
		t.Run(name, func(t *testing.T) {
			rule, err := p.Explain(c.intent)
			if c.rule != "" {
				require.NoError(t, err)
				assert.Equal(t, c.rule, rule)
				return
			}
			e := refusal(t, err)
			assert.Contains(t, e.Detail, c.says)
			assert.Contains(t, e.Fix, "policy.yaml", "says who could change it, and where")
		})
	}
}

func refusal(t *testing.T, err error) *problem.Error {
	t.Helper()
	e := problemtest.Of(t, err)
	assert.Equal(t, runnerapi.CodePolicyDenied, e.Code)
	assert.Equal(t, 403, e.Status)
	assert.NotEmpty(t, e.Fix)
	return e
}

func TestPolicy_BoundsApp(t *testing.T) {
	p := load(t, rules)
	five, six := int32(5), int32(6)
	for name, c := range map[string]struct {
		change func(*runnerapi.AppSpec)
		field  string // empty where it is allowed
		says   string
	}{
		"as it should be": {func(*runnerapi.AppSpec) {}, "", ""},
		"repository below": {func(s *runnerapi.AppSpec) {
			s.Image = "registry.example.com/shop/a/b@sha256:" + strings.Repeat("a", 64)
		}, "", ""},
		"Docker Hub's short name":  {func(s *runnerapi.AppSpec) { s.Image = "nginx" }, "", ""},
		"Docker Hub's other name":  {func(s *runnerapi.AppSpec) { s.Image = "index.docker.io/library/nginx:1" }, "", ""},
		"another repository":       {func(s *runnerapi.AppSpec) { s.Image = "busybox" }, "image", "not from docker.io/library/busybox"},
		"a repository's beginning": {func(s *runnerapi.AppSpec) { s.Image = "registry.example.com/shopping/web" }, "image", "images from registry.example.com/shop, "},
		"a registry's beginning":   {func(s *runnerapi.AppSpec) { s.Image = "registry.example.com.evil.example/shop/web" }, "image", "images from"},
		"another port":             {func(s *runnerapi.AppSpec) { s.Image = "registry.example.com:5000/shop/web" }, "image", "images from"},
		"a path trick":             {func(s *runnerapi.AppSpec) { s.Image = "registry.example.com/shop/../evil" }, "image", "not an image reference"},
		"no reference":             {func(s *runnerapi.AppSpec) { s.Image = "https://x" }, "image", "not an image reference"},
		"init container": {func(s *runnerapi.AppSpec) {
			s.InitContainers = []runnerapi.InitContainer{{Name: "a", Resources: s.Resources}, {Name: "b", Image: "evil.example/x", Resources: s.Resources}}
		}, "initContainers[1].image", "not from evil.example/x"},
		"init container without limits": {func(s *runnerapi.AppSpec) {
			s.InitContainers = []runnerapi.InitContainer{{Name: "a"}}
		}, "initContainers[0].resources.limits.cpu", "wants a limit"},
		"as many pods as there may be": {func(s *runnerapi.AppSpec) { s.Replicas = &five }, "", ""},
		"too many pods":                {func(s *runnerapi.AppSpec) { s.Replicas = &six }, "replicas", "at most 5 pods of an App, not 6"},
		"too many by autoscaling":      {func(s *runnerapi.AppSpec) { s.Autoscaling = &runnerapi.Autoscaling{Min: 1, Max: 6} }, "autoscaling.max", "at most 5"},
		"too many of a Job":            {func(s *runnerapi.AppSpec) { s.Job = &runnerapi.JobOptions{Parallelism: 6} }, "job.parallelism", "at most 5"},
		"too much memory":              {func(s *runnerapi.AppSpec) { s.Resources.Limits.Memory = "1.1Gi" }, "resources.limits.memory", "at most 1Gi, not 1.1Gi"},
		"too much CPU":                 {func(s *runnerapi.AppSpec) { s.Resources.Limits.CPU = "2001m" }, "resources.limits.cpu", "at most 2, not 2001m"},
		"no limit":                     {func(s *runnerapi.AppSpec) { s.Resources.Limits.Memory = "" }, "resources.limits.memory", "wants a limit of each container, at most 1Gi"},
	} {
		t.Run(name, func(t *testing.T) {
			err := p.Decide(deploy(c.change))
			if c.field == "" {
				require.NoError(t, err)
				return
			}
			e := refusal(t, err)
			assert.Equal(t, c.field, e.Field)
			assert.Contains(t, e.Detail, `rule "shop" of the customer's policy`)
			assert.Contains(t, e.Detail, c.says)
			assert.Contains(t, e.Fix, "rules[1].")
		})
	}
}

func TestPolicy_BoundsScale(t *testing.T) {
	p := load(t, rules)
	n := int32(6)
	for field, scale := range map[string]runnerapi.Scale{"replicas": {Replicas: &n}, "max": {Max: &n}, "min": {Min: &n}} {
		i := intent("ci", "scale-app", "shop")
		i.Scale = &scale
		assert.Equal(t, field, refusal(t, p.Decide(i)).Field)
	}
}

func TestPolicy_BoundsManifestsByKind(t *testing.T) {
	p := load(t, rules)
	i := intent("ops", "apply-manifests", "shop")
	i.Objects = []runnerapi.ObjectIntent{{Kind: "ConfigMap"}, {Kind: "deployment.apps"}}
	require.NoError(t, p.Decide(i))
	i.Objects = []runnerapi.ObjectIntent{{Kind: "ConfigMap"}, {Kind: "ClusterRole.rbac.authorization.k8s.io"}}
	e := refusal(t, p.Decide(i))
	assert.Equal(t, "kind", e.Field)
	assert.Contains(t, e.Detail, "not of ClusterRole.rbac.authorization.k8s.io")
}

func TestPolicy_BoundsCharts(t *testing.T) {
	p := load(t, `rules: [{name: charts, commands: [put-release], kinds: [ConfigMap, Deployment.apps], images: [registry.example.com/shop],
  maxReplicas: 2, maxResources: {cpu: "1"}}]`)
	i := intent("ops", "put-release", "shop")
	well := runnerapi.ContainerIntent{Name: "c", Image: "registry.example.com/shop/web:1", Limits: runnerapi.ResourceAmounts{CPU: "500m"}}
	elsewhere, unlimited := well, well
	elsewhere.Image, unlimited.Limits = "docker.io/library/nginx", runnerapi.ResourceAmounts{}
	for says, o := range map[string]runnerapi.ObjectIntent{
		"":                          {Kind: "Deployment.apps", Counts: []runnerapi.CountIntent{{Field: "spec.replicas", Pods: 2}}, Containers: []runnerapi.ContainerIntent{well}},
		"not of Secret":             {Kind: "Secret"},
		"at most 2 pods":            {Kind: "Deployment.apps", Counts: []runnerapi.CountIntent{{Field: "spec.replicas", Pods: 3}}},
		"not from docker.io":        {Kind: "Deployment.apps", Containers: []runnerapi.ContainerIntent{well, elsewhere}},
		"a limit of each container": {Kind: "Deployment.apps", Containers: []runnerapi.ContainerIntent{unlimited}},
	} {
		o.Location = "Thing a (web/templates/a.yaml)"
		i.Objects = []runnerapi.ObjectIntent{{Kind: "ConfigMap"}, o}
		err := p.Decide(i)
		if says == "" {
			require.NoError(t, err)
			continue
		}
		assert.Contains(t, refusal(t, err).Detail, says)
		assert.Equal(t, "chart", refusal(t, err).Field)
		assert.Contains(t, refusal(t, err).Location, "Thing a (web/templates/a.yaml)")
		assert.Contains(t, refusal(t, err).Detail, refusal(t, err).Location+": rule ")
	}
	i = intent("ops", "put-release", "shop")
	i.Objects = []runnerapi.ObjectIntent{{Kind: "ConfigMap"}}
	require.Error(t, load(t, "rules: [{name: none, commands: [put-release]}]").Decide(i), "a rule without kinds allows none")
	require.Error(t, load(t, "rules: [{name: all}]").Decide(i), "it has to be named")
}

func TestPolicy_Default(t *testing.T) {
	p := load(t, "")
	assert.Equal(t, "default", p.State().State)
	for name, access := range policy.Commands() {
		err := p.Decide(intent("ci", name, "shop"))
		assert.Equal(t, access != runnerapi.Named, err == nil, "%s: %v", name, err)
	}
}

func TestPolicy_EmptyDeniesAll(t *testing.T) {
	p := load(t, "rules: []")
	refusal(t, p.Decide(intent("ci", "get-app", "shop")))
}

func TestPolicy_ReadOnly(t *testing.T) {
	p := load(t, "readOnly: true")
	assert.Equal(t, "readOnly", p.State().State)
	require.NoError(t, p.Decide(intent("ci", "get-app-logs", "shop")))
	for _, command := range []string{"put-app", "exec-app", "delete-namespace"} {
		assert.Contains(t, refusal(t, p.Decide(intent("ci", command, "shop"))).Detail, "readOnly")
	}
}

func TestPolicy_Paused(t *testing.T) {
	p := load(t, "paused: true\n"+rules)
	assert.Equal(t, "paused", p.State().State)
	for name := range policy.Commands() {
		err := p.Decide(intent("ops", name, "shop"))
		if name == "get-cluster" {
			require.NoError(t, err)
			continue
		}
		e := refusal(t, err)
		assert.Contains(t, e.Detail, "(paused)")
		assert.Contains(t, e.Fix, "policy.yaml")
	}
}

func TestPolicy_InvalidDeniesAll(t *testing.T) {
	p := load(t, "")
	_, wrong := policy.Parse([]byte("rules: [{name: a, comands: [read]}]"))
	require.Error(t, wrong)
	changed := p.Changed()
	assert.True(t, p.Set(policy.Document{}, wrong))
	select {
	case <-changed:
	default:
		t.Error("the change is not told")
	}
	for name := range policy.Commands() {
		if err := p.Decide(intent("ci", name, "shop")); name != "get-cluster" {
			e := refusal(t, err)
			assert.Contains(t, e.Detail, "rules[0].comands")
			assert.Contains(t, e.Fix, "policy check")
		} else {
			require.NoError(t, err, "it tells what is wrong")
		}
	}
	s := p.State()
	assert.Equal(t, "invalid", s.State)
	assert.Contains(t, s.Message, "rules[0].comands")
	assert.False(t, p.Set(policy.Document{}, wrong), "no change")
}

func TestPolicy_UnknownIsRetried(t *testing.T) {
	e := problemtest.Of(t, policy.New("x").Decide(intent("ci", "get-app", "shop")))
	assert.Equal(t, problem.Unavailable, e.Code)
	assert.Positive(t, e.RetryAfter)
}

// An API server that has just started forbids everything for a moment.
func TestPolicy_UnreadableIsRetried(t *testing.T) {
	p := load(t, "")
	require.True(t, p.Set(policy.Document{}, problem.Errorf(problem.Forbidden, "apply the manifest", "the ConfigMap may not be read")))
	e := problemtest.Of(t, p.Decide(intent("ci", "get-app", "shop")))
	assert.Equal(t, problem.Unavailable, e.Code)
	assert.Positive(t, e.RetryAfter)
	assert.Contains(t, e.Fix, "apply the manifest")
	require.NoError(t, p.Decide(intent("ci", "get-cluster", "")))
}

// refusesField expects that no policy has this text, because of a field of it.
func refusesField(t *testing.T, text, field string) {
	t.Helper()
	_, err := policy.Parse([]byte(text))
	e := problemtest.Of(t, err, text)
	assert.Equal(t, field, e.Field, "%.60s: %v", text, e)
	assert.NotEmpty(t, e.Fix, text)
}

func TestPolicy_NamesFields(t *testing.T) {
	for text, field := range map[string]string{
		"rules: [{name: a, commands: [dance]}]":                              "rules[0].commands[0]",
		"rules: [{name: a, commands: ['exec-*']}]":                           "rules[0].commands[0]",
		"rules: [{name: a}, {name: a}]":                                      "rules[1].name",
		"rules: [{}]":                                                        "rules[0].name",
		"rules: [{name: a, runners: ['[']}]":                                 "rules[0].runners[0]",
		"rules: [{name: a, namespaces: ['']}]":                               "rules[0].namespaces[0]",
		"rules: [{name: a, images: [nginx]}]":                                "rules[0].images[0]",
		"rules: [{name: a, images: ['registry.example.com/a:1']}]":           "rules[0].images[0]",
		"rules: [{name: a, images: ['registry.example.com/*']}]":             "rules[0].images[0]",
		"rules: [{name: a, maxReplicas: -1}]":                                "rules[0].maxReplicas",
		"rules: [{name: a, maxResources: {cpu: lots}}]":                      "rules[0].maxResources.cpu",
		"rules: [{name: a, kinds: [ConfigMap]}]":                             "rules[0].kinds",
		"rules: [{name: a, deny: true, maxReplicas: 1}]":                     "rules[0].deny",
		"rules: [{name: a, record: true}]":                                   "rules[0].record",
		"rules: [{name: a, deny: true, commands: [exec-app], record: true}]": "rules[0].deny",
		"rules: [{name: a, allow: true}]":                                    "rules[0].allow",
		"pause: true":                                                        "pause",
		"paused: maybe":                                                      "paused",
		"paused: true\npaused: false":                                        "",
		"a: [":                                                               "",
		"- x":                                                                "",
		"rules: [{name: a}]\n#" + strings.Repeat("x", policy.MaxSize):        "",
		"rules: [{name: a, commands: [read], maxResources: {disk: 1Gi}}]":    "rules[0].maxResources.disk",
	} {
		refusesField(t, text, field)
	}
}

func TestPolicy_ConfigMapSwitches(t *testing.T) {
	doc, err := policy.FromConfigMap(nil)
	require.NoError(t, err)
	assert.Equal(t, policy.Document{}, doc)

	doc, err = policy.FromConfigMap(map[string]string{"policy.yaml": "rules: []", "paused": "true", "readOnly": "false"})
	require.NoError(t, err)
	assert.Equal(t, policy.Document{Paused: true, Rules: []policy.Rule{}}, doc)

	doc, err = policy.FromConfigMap(map[string]string{"policy.yaml": "paused: true", "paused": "false"})
	require.NoError(t, err)
	assert.True(t, doc.Paused, "whoever says so stops it")

	for key, value := range map[string]string{"paused": "yes please", "pause": "true"} {
		_, err = policy.FromConfigMap(map[string]string{key: value})
		e := problemtest.Of(t, err)
		assert.Equal(t, key, e.Field)
	}
}

func TestPolicy_BoundsJobs(t *testing.T) {
	p := load(t, rules)
	limits := runnerapi.Resources{Limits: runnerapi.ResourceAmounts{CPU: "1", Memory: "512Mi"}}
	ask := func(command string, spec runnerapi.AppSpec) error {
		i := intent("ci", command, "shop")
		i.App = &spec
		return p.Decide(i)
	}
	job := runnerapi.JobSpec{Image: "registry.example.com/shop/web:1", Resources: limits}
	require.NoError(t, ask("put-job", job.AppSpec()))
	job.Parallelism = 6
	require.ErrorContains(t, ask("put-job", job.AppSpec()), "at most 5 pods")

	pipeline := runnerapi.PipelineSpec{
		Image: "registry.example.com/shop/web:1",
		Jobs:  []runnerapi.PipelineJob{{Name: "test", Resources: limits}, {Name: "deploy", Resources: limits, Image: "nginx"}},
	}
	require.NoError(t, ask("put-pipeline", pipeline.AppSpec()), "each job has its own limits")
	for field, spoil := range map[string]func(*runnerapi.PipelineJob){
		"jobs[1].image":                   func(j *runnerapi.PipelineJob) { j.Image = "evil.example.com/x" },
		"jobs[1].resources.limits.cpu":    func(j *runnerapi.PipelineJob) { j.Resources = runnerapi.Resources{} },
		"jobs[1].resources.limits.memory": func(j *runnerapi.PipelineJob) { j.Resources.Limits.Memory = "2Gi" },
	} {
		broken := pipeline
		broken.Jobs = append([]runnerapi.PipelineJob(nil), pipeline.Jobs...)
		spoil(&broken.Jobs[1])
		known := problemtest.Of(t, ask("put-pipeline", broken.AppSpec()), field)
		assert.Equal(t, field, known.Field)
		problemtest.Of(t, ask("put-app", broken.AppSpec()), "nor by the other way")
	}
}

// A template can show what it looked up.
func TestPolicy_SecretLookupByName(t *testing.T) {
	look := func(p *policy.Policy, kind string) error {
		return p.Decide(runnerapi.Intent{
			Command: "put-release", Access: runnerapi.Named, Runner: "ci", Namespace: "shop",
			Objects: []runnerapi.ObjectIntent{{Location: "lookup of " + kind + " db", Kind: kind, LookedUp: true}},
		})
	}
	none := load(t, `rules: [{name: charts, commands: [put-release], kinds: ["*"]}]`)
	require.NoError(t, look(none, "ConfigMap"))
	refused := problemtest.Of(t, look(none, "Secret"))
	assert.Equal(t, runnerapi.CodePolicyDenied, refused.Code)
	assert.Contains(t, refused.Detail, `rule "charts" of the customer's policy lets templates look up all kinds but Secret, not Secret`)
	assert.Contains(t, refused.Fix, "rules[0].lookups")

	some := load(t, `rules: [{name: charts, commands: [put-release], kinds: [ConfigMap], lookups: [Secret, Ingress.networking.k8s.io]}]`)
	require.NoError(t, look(some, "Secret"))
	require.NoError(t, look(some, "Ingress.networking.k8s.io"))
	require.ErrorContains(t, look(some, "ConfigMap"), "look up Secret, Ingress.networking.k8s.io, not ConfigMap")
	require.NoError(t, look(load(t, `rules: [{name: charts, commands: [put-release], lookups: ["*"]}]`), "Secret"))
	require.Error(t, look(load(t, `rules: [{name: charts, commands: [put-release], lookups: []}]`), "Secret"))

	for text, field := range map[string]string{
		`rules: [{name: a, lookups: [Secret]}]`:                                      "rules[0].lookups",
		`rules: [{name: a, deny: true, commands: [put-release], lookups: [Secret]}]`: "rules[0].deny",
	} {
		refusesField(t, text, field)
	}
}
