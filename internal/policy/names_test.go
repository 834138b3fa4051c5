package policy_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/policy"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/problemtest"
)

// forbidden are annotations that no rule can allow.
var forbidden = []string{
	"container.apparmor.security.beta.kubernetes.io/web", "seccomp.security.alpha.kubernetes.io/pod",
	"container.seccomp.security.alpha.kubernetes.io/web", "security.alpha.kubernetes.io/unsafe-sysctls",
	"io.kubernetes.cri-o.Devices", "io.kubernetes.cri-o.userns-mode", "seccomp-profile.kubernetes.cri-o.io/web",
	"io.katacontainers.config.hypervisor.path", "dev.gvisor.spec.mount.data.source", "run.oci.hooks.stderr",
	"org.systemd.property.DeviceAllow", "cdi.k8s.io/gpu", "devices.nri.io/container.web", "sidecar.istio.io/userVolume",
	"nginx.ingress.kubernetes.io/configuration-snippet", "nginx.ingress.kubernetes.io/server-snippet",
	"nginx.ingress.kubernetes.io/auth-snippet", "nginx.ingress.kubernetes.io/modsecurity-snippet",
	"nginx.org/server-snippets", "nginx.org/location-snippets", "nginx.org/stream-snippets",
	"haproxy.org/backend-config-snippet", "haproxy-ingress.github.io/config-backend", "zalando.org/skipper-filter",
	"getambassador.io/config",
}

// bringing are intents that bring an annotation, each in another way.
func bringing(key string) map[string]runnerapi.Intent {
	app := func(command string, s runnerapi.AppSpec) runnerapi.Intent {
		i := intent("ci", command, "shop")
		s.Image = "web"
		i.App = &s
		return i
	}
	object := func(command string) runnerapi.Intent {
		i := intent("ci", command, "shop")
		i.Objects = []runnerapi.ObjectIntent{{Kind: "Service", Annotations: []runnerapi.NameIntent{{Field: "metadata.annotations", Name: key}}}}
		return i
	}
	some := map[string]string{key: "x"}
	return map[string]runnerapi.Intent{
		"pods": app("put-app", runnerapi.AppSpec{PodAnnotations: some}),
		"job":  app("put-job", runnerapi.AppSpec{PodAnnotations: some}),
		"ingress": app("put-app", runnerapi.AppSpec{Ingress: &runnerapi.Ingress{
			Hosts: []runnerapi.IngressHost{{Host: "shop.example.com"}}, Annotations: some,
		}}),
		"manifest": object("apply-manifests"), "chart": object("put-release"), "chart of before": object("rollback-release"),
	}
}

// TestPolicy_AnnotationsByName looks at all that brings them, under the default policy and
// under one that allows all that can be allowed.
func TestPolicy_AnnotationsByName(t *testing.T) {
	all := load(t, `rules: [{name: all, commands: ["*", apply-manifests, put-release, rollback-release], kinds: ["*"], annotations: ["*"]}]`)
	some := load(t, `rules: [{name: some, commands: ["*", apply-manifests, put-release, rollback-release], kinds: ["*"], annotations: [example.com/*, cert-manager.io/issuer]}]`)
	for _, key := range forbidden {
		for what, i := range bringing(key) {
			e := refusal(t, all.Decide(i))
			assert.Contains(t, e.Fix, "no rule can allow it", "%s of %s", key, what)
			assert.Contains(t, e.Detail+e.Location, key, what)
		}
	}
	for _, key := range []string{"external-dns.alpha.kubernetes.io/hostname", "cert-manager.io/cluster-issuer", "example.com", "other.example.com/a"} {
		for what, i := range bringing(key) {
			refusal(t, some.Decide(i))
			require.NoError(t, all.Decide(i), what)
		}
	}
	for _, key := range []string{"example.com/a", "cert-manager.io/issuer", "checksum/config", "helm.sh/hook", "kubectl.kubernetes.io/default-container"} {
		for what, i := range bringing(key) {
			require.NoError(t, some.Decide(i), what)
		}
	}
	standard := load(t, "")
	for what, i := range bringing("example.com/a") {
		assert.Error(t, standard.Decide(i), what)
	}
	e := refusal(t, standard.Decide(bringing("example.com/a")["ingress"]))
	assert.Equal(t, "ingress.annotations.example.com/a", e.Field)
	assert.Contains(t, e.Detail, `rule "default" of the customer's policy allows no annotations, not "example.com/a"`)
}

// A rule without hosts allows any, as with images. Wildcards include the names of others, so a rule
// has to name them.
func TestPolicy_Hosts(t *testing.T) {
	serving := func(hosts ...string) runnerapi.Intent {
		return deploy(func(s *runnerapi.AppSpec) {
			s.Ingress = &runnerapi.Ingress{}
			for _, host := range hosts {
				s.Ingress.Hosts = append(s.Ingress.Hosts, runnerapi.IngressHost{Host: host})
			}
		})
	}
	standard, none := load(t, ""), load(t, "rules: [{name: none, hosts: []}]")
	shop := load(t, `rules: [{name: shop, hosts: [shop.example.com, "*.shop.example.com"]}]`)
	for host, allowed := range map[string]bool{
		"shop.example.com": true, "a.shop.example.com": true, "*.shop.example.com": true, "*.a.shop.example.com": true,
		"example.com": false, "shop.example.com.evil.example": false, "evilshop.example.com": false, "*.example.com": false, "*": false,
	} {
		assert.Equal(t, allowed, shop.Decide(serving("shop.example.com", host)) == nil, host)
		assert.Equal(t, host[0] != '*', standard.Decide(serving(host)) == nil, host)
		refusal(t, none.Decide(serving(host)))
	}
	e := refusal(t, shop.Decide(serving("shop.example.com", "their.example.com")))
	assert.Equal(t, "ingress.hosts[1].host", e.Field)
	assert.Contains(t, e.Detail, "allows the hosts shop.example.com, *.shop.example.com, not their.example.com")
	assert.Contains(t, e.Fix, "rules[0].hosts")
	refusal(t, standard.Decide(serving("*.example.com")))

	i := intent("ops", "apply-manifests", "shop")
	i.Objects = []runnerapi.ObjectIntent{{Kind: "Ingress.networking.k8s.io", Hosts: []runnerapi.NameIntent{{Field: "spec.rules[0].host", Name: "*"}}}}
	assert.Contains(t, refusal(t, load(t, "rules: [{name: a, commands: [apply-manifests], kinds: ['*']}]").Decide(i)).Detail, "every host")
	require.NoError(t, load(t, "rules: [{name: a, commands: [apply-manifests], kinds: ['*'], hosts: ['*']}]").Decide(i))
}

// Without placement a rule bounds neither nodes nor priority, as Kubernetes does not.
func TestPolicy_Placement(t *testing.T) {
	placed := deploy(func(s *runnerapi.AppSpec) {
		s.NodeSelector, s.PriorityClass = map[string]string{"example.com/pool": "shop"}, "high"
		s.Tolerations = []runnerapi.Toleration{{Key: "gpu"}}
	})
	require.NoError(t, load(t, "rules: [{name: any}]").Decide(placed))
	require.NoError(t, load(t, "rules: [{name: some, placement: [nodeSelector/example.com/*, toleration/gpu, priorityClass/*]}]").Decide(placed))
	for text, field := range map[string]string{
		"[]": "nodeSelector.example.com/pool", "[nodeSelector/*, priorityClass/high]": "tolerations[0]", "[nodeSelector/*, toleration/gpu, priorityClass/low]": "priorityClassName",
	} {
		e := refusal(t, load(t, "rules: [{name: some, placement: "+text+"}]").Decide(placed))
		assert.Equal(t, field, e.Field, text)
		assert.Contains(t, e.Fix, "rules[0].placement")
	}
	all := deploy(func(s *runnerapi.AppSpec) { s.Tolerations = []runnerapi.Toleration{{Operator: "Exists"}} })
	refusal(t, load(t, "rules: [{name: some, placement: [toleration/gpu]}]").Decide(all))
	require.NoError(t, load(t, "rules: [{name: some, placement: [toleration/*]}]").Decide(all))
	device := deploy(func(s *runnerapi.AppSpec) { s.Resources.Devices = map[string]int32{"nvidia.com/gpu": 1} })
	require.NoError(t, load(t, "rules: [{name: any}]").Decide(device))
	require.NoError(t, load(t, "rules: [{name: some, placement: [device/nvidia.com/*]}]").Decide(device))
	e := refusal(t, load(t, "rules: [{name: some, placement: [nodeSelector/*, device/amd.com/gpu]}]").Decide(device))
	assert.Equal(t, "resources.devices.nvidia.com/gpu", e.Field)
	_, err := policy.Parse([]byte("rules: [{name: a, placement: ['a b']}]"))
	assert.Equal(t, "rules[0].placement[0]", problemtest.Of(t, err, "no pattern").Field)
}

func TestPolicy_NamePatterns(t *testing.T) {
	for text, field := range map[string]string{
		`rules: [{name: a, hosts: ["shop.example.com/x"]}]`:                                       "rules[0].hosts[0]",
		`rules: [{name: a, hosts: ["Shop.example.com"]}]`:                                         "rules[0].hosts[0]",
		`rules: [{name: a, hosts: ["[a-z].example.com"]}]`:                                        "rules[0].hosts[0]",
		`rules: [{name: a, hosts: ["*.*.*.*.*.example.com"]}]`:                                    "rules[0].hosts[0]",
		`rules: [{name: a, annotations: ["a b"]}]`:                                                "rules[0].annotations[0]",
		`rules: [{name: a, annotations: [""]}]`:                                                   "rules[0].annotations[0]",
		`rules: [{name: a, annotations: [nginx.org/server-snippets]}]`:                            "rules[0].annotations[0]",
		`rules: [{name: a, deny: true, annotations: [example.com/*]}]`:                            "rules[0].deny",
		`rules: [{name: a, deny: true, hosts: [a.example.com]}]`:                                  "rules[0].deny",
		`rules: [{name: a, annotations: ["container.apparmor.security.beta.kubernetes.io/web"]}]`: "rules[0].annotations[0]",
	} {
		refusesField(t, text, field)
	}
}

// A rule that demands visitors allows nothing that lets in everyone, whatever brings it.
func TestPolicy_Visitors(t *testing.T) {
	p := load(t, "rules: [{name: some, visitors: required}]")
	app := func(in runnerapi.Ingress) runnerapi.Intent {
		return runnerapi.Intent{Command: "put-app", Access: runnerapi.Writes, Runner: "ci", Namespace: "shop", App: &runnerapi.AppSpec{Image: "a", Ingress: &in}}
	}
	hosts := []runnerapi.IngressHost{{Host: "a.example.com"}}
	office := &runnerapi.Visitors{AllowFrom: []string{"203.0.113.0/24"}}
	require.NoError(t, p.Decide(app(runnerapi.Ingress{Hosts: hosts, Public: true, Visitors: office})))
	require.NoError(t, load(t, "rules: [{name: some}]").Decide(app(runnerapi.Ingress{Public: true})))
	for field, in := range map[string]runnerapi.Ingress{
		"ingress.public":        {Public: true, Visitors: &runnerapi.Visitors{RequestsPerSecond: 1}},
		"ingress.hosts[0].host": {Hosts: hosts, Visitors: &runnerapi.Visitors{AllowFrom: []string{"0.0.0.0/0"}}},
	} {
		e := refusal(t, p.Decide(app(in)))
		assert.Equal(t, field, e.Field)
		assert.Contains(t, e.Fix, "rules[0].visitors")
	}
	set := func(o runnerapi.ObjectIntent) runnerapi.Intent {
		o.Kind = "Ingress.networking.k8s.io"
		return runnerapi.Intent{Command: "apply-manifests", Access: runnerapi.Named, Runner: "ci", Namespace: "shop", Objects: []runnerapi.ObjectIntent{o}}
	}
	p = load(t, "rules: [{name: some, commands: [apply-manifests], kinds: ['*'], visitors: required}]")
	require.NoError(t, p.Decide(set(runnerapi.ObjectIntent{})))
	refusal(t, p.Decide(set(runnerapi.ObjectIntent{Hosts: []runnerapi.NameIntent{{Field: "spec.rules[0].host", Name: "a.example.com"}}})))
	refusal(t, p.Decide(set(runnerapi.ObjectIntent{Outside: []runnerapi.NameIntent{{Field: "spec.type", Name: "NodePort"}}})))
	p = load(t, "rules: [{name: some, visitors: sign-in}]")
	people := &runnerapi.SignIn{Emails: []string{"*@example.com"}}
	everyone := &runnerapi.SignIn{Emails: []string{"*"}}
	for _, v := range []*runnerapi.Visitors{{SignIn: people}, {SignIn: everyone}, {SignIn: people, ServiceTokensSecret: "tokens"}} {
		require.NoError(t, p.Decide(app(runnerapi.Ingress{Hosts: hosts, Visitors: v})))
	}
	anywhere := &runnerapi.SignIn{Secret: "mine", Emails: []string{"*"}}
	for _, v := range []*runnerapi.Visitors{nil, office, {BasicAuthSecret: "users"}, {ServiceTokensSecret: "tokens"}, {SignIn: anywhere}, {SignIn: anywhere, ServiceTokensSecret: "tokens"}} {
		e := problemtest.Of(t, p.Decide(app(runnerapi.Ingress{Hosts: hosts, Visitors: v})), "has signIn")
		assert.Contains(t, e.Fix, "rules[0].visitors")
	}

	_, err := policy.Parse([]byte("rules: [{name: a, visitors: yes please}]"))
	assert.Equal(t, "rules[0].visitors", problemtest.Of(t, err, "no value").Field)
}
