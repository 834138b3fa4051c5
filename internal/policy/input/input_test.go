package input_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/pipeops/pipeops-vm-agent/internal/policy/input"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func object(t *testing.T, text string) runnerapi.ObjectIntent {
	t.Helper()
	in, err := input.Object(read(t, text))
	require.NoError(t, err, text)
	return in
}

func read(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	require.NoError(t, err)
	u := &unstructured.Unstructured{}
	require.NoError(t, u.UnmarshalJSON(raw))
	return u
}

func names(all []runnerapi.NameIntent) (names []string) {
	for _, n := range all {
		names = append(names, n.Name)
	}
	return names
}

func images(all []runnerapi.ContainerIntent) (images []string) {
	for _, c := range all {
		images = append(images, c.Image)
	}
	return images
}

func pods(all []runnerapi.CountIntent) (pods []int) {
	for _, c := range all {
		pods = append(pods, int(c.Pods))
	}
	return pods
}

const pod = `{metadata: {annotations: {example.com/pod: x}}, spec: {containers: [{name: c, image: web, resources: {limits: {cpu: 2, memory: 1Gi}}}],
  initContainers: [{name: i, image: init}], ephemeralContainers: [{name: e, image: debug}], volumes: [{name: v, image: {reference: files}}]}}`

// TestPods_OfEachKind expects the same of each kind that runs pods, also of unknown kinds.
func TestPods_OfEachKind(t *testing.T) {
	for kind, text := range map[string]string{
		"Deployment":            "{apiVersion: apps/v1, kind: Deployment, spec: {replicas: 7, template: POD}}",
		"StatefulSet":           "{apiVersion: apps/v1, kind: StatefulSet, spec: {replicas: 7, template: POD}}",
		"ReplicaSet":            "{apiVersion: apps/v1, kind: ReplicaSet, spec: {replicas: 7, template: POD}}",
		"ReplicationController": "{apiVersion: v1, kind: ReplicationController, spec: {replicas: 7, template: POD}}",
		"Job":                   "{apiVersion: batch/v1, kind: Job, spec: {parallelism: 7, template: POD}}",
		"CronJob":               "{apiVersion: batch/v1, kind: CronJob, spec: {jobTemplate: {spec: {parallelism: 7, template: POD}}}}",
		"of a stranger":         "{apiVersion: example.com/v1, kind: Fleet, spec: {replicas: 7, template: POD}}",
		"deep in a stranger":    "{apiVersion: example.com/v1, kind: Fleet, spec: {groups: [{replicas: 7, podTemplate: POD}]}}",
	} {
		in := object(t, strings.ReplaceAll(text, "POD", pod))
		assert.ElementsMatch(t, []string{"web", "init", "debug", "files"}, images(in.Containers), kind)
		assert.Equal(t, []int{7}, pods(in.Counts), kind)
		assert.Equal(t, []string{"example.com/pod"}, names(in.Annotations), kind)
		for _, c := range in.Containers {
			if c.Image == "web" {
				assert.Equal(t, runnerapi.ResourceAmounts{CPU: "2", Memory: "1Gi"}, c.Limits, kind)
				assert.Contains(t, c.Field, "spec.containers[0]")
			}
		}
	}
	for _, text := range []string{
		"{apiVersion: v1, kind: Pod, spec: SPEC}", "{apiVersion: apps/v1, kind: DaemonSet, spec: {template: {spec: SPEC}}}",
		"{apiVersion: v1, kind: PodTemplate, template: {spec: SPEC}}",
	} {
		in := object(t, strings.ReplaceAll(text, "SPEC", "{containers: [{name: c, image: web}], initContainers: [{name: i, image: init}]}"))
		assert.ElementsMatch(t, []string{"web", "init"}, images(in.Containers), text)
	}
	in := object(t, "{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, spec: {minReplicas: 1, maxReplicas: 90}}")
	assert.Equal(t, []int{90}, pods(in.Counts))
	in = object(t, "{apiVersion: example.com/v1, kind: Database, spec: {image: registry.example.com/db, replicas: 7.5, containers: [{name: c}]}}")
	assert.Equal(t, []string{"", "registry.example.com/db"}, images(in.Containers))
	assert.Equal(t, []int{8}, pods(in.Counts))
	assert.True(t, in.Containers[0].Partial, "its controller adds the image")
}

// TestPods_NoneOfOthers has objects that look as if they ran pods.
func TestPods_NoneOfOthers(t *testing.T) {
	for _, text := range []string{
		"{apiVersion: v1, kind: ConfigMap, metadata: {annotations: {a: b}}, data: {image: nginx, replicas: '9'}}",
		`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {annotations: {a: b}},
  spec: {versions: [{schema: {openAPIV3Schema: {properties: {annotations: {type: object}, replicas: {type: integer}, containers: {type: array}}}}}]}}`,
	} {
		in := object(t, text)
		assert.Empty(t, in.Containers, text)
		assert.Empty(t, in.Counts, text)
		assert.Equal(t, []string{"a"}, names(in.Annotations), text)
	}
}

// Otherwise the policy would admit them.
func TestPods_UnreadableIsError(t *testing.T) {
	for text, says := range map[string]string{
		"{apiVersion: v1, kind: Pod, spec: {containers: {name: c, image: hidden}}}":                                             "spec.containers: is an object, but has to be a list",
		"{apiVersion: v1, kind: Pod, spec: {containers: [{name: c, image: [hidden]}]}}":                                         "spec.containers[0].image: is a list, but has to be a text; put it in quotes",
		"{apiVersion: apps/v1, kind: Deployment, spec: {template: x}}":                                                          "spec.template: is a text, but has to be an object",
		"{apiVersion: v1, kind: Pod, spec: {containers: [{name: c, resources: {limits: {cpu: many}}}]}}":                        "spec.containers[0].resources.limits.cpu: is not a valid Quantity",
		"{apiVersion: example.com/v1, kind: Fleet, spec: {containers: [{name: c, resources: {limits: {cpu: many}}}]}}":          "spec.containers[0].resources.limits: quantities must match",
		`{apiVersion: v1, kind: Pod, spec: {containers: [{name: c}, {name: d, ports: [{containerPort: "8080"}]}]}}`:             "spec.containers[1].ports[0].containerPort: is a text, but has to be a whole number of 32 bits",
		`{apiVersion: v1, kind: Pod, spec: {containers: [{name: c, env: [{name: A, value: 8080}]}]}}`:                           "spec.containers[0].env[0].value: is a number, but has to be a text; put it in quotes",
		"{apiVersion: batch/v1, kind: CronJob, spec: {jobTemplate: {spec: {template: {spec: {containers: [{command: /x}]}}}}}}": "spec.jobTemplate.spec.template.spec.containers[0].command: is a text, but has to be a list",
		"{apiVersion: v1, kind: Secret, stringData: {a: b, c: 1}}":                                                              "stringData.c: is a number",
		"{apiVersion: v1, kind: Service, spec: {ports: [{port: 80}, {targetPort: [a]}]}}":                                       "spec.ports[1].targetPort: is not a valid IntOrString",
		"{apiVersion: pipeops.io/v1alpha1, kind: App, metadata: {name: web}, spec: {ports: [{port: x}]}}":                       "spec.ports[0].port: is a text",
	} {
		_, err := input.Object(read(t, text))
		var p *problem.Error
		require.ErrorAs(t, err, &p, text)
		assert.Contains(t, p.Field+": "+p.Detail, says)
	}
}

func TestHosts_OfEachKind(t *testing.T) {
	for text, hosts := range map[string][]string{
		"{apiVersion: networking.k8s.io/v1, kind: Ingress, spec: {rules: [{host: A.example.com}, {http: {}}], tls: [{hosts: [b.example.com]}]}}":                          {"a.example.com", "*", "b.example.com"},
		"{apiVersion: networking.k8s.io/v1, kind: Ingress, spec: {defaultBackend: {service: {name: a}}}}":                                                                 {"*"},
		"{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, spec: {hostnames: [a.example.com, '*.b.example.com']}}":                                              {"a.example.com", "*.b.example.com"},
		"{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, spec: {}}":                                                                                           {"*"},
		"{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, spec: {listeners: [{hostname: a.example.com}, {port: 80}]}}":                                           {"a.example.com", "*"},
		"{apiVersion: networking.istio.io/v1, kind: Gateway, spec: {servers: [{hosts: [shop/a.example.com]}]}}":                                                           {"a.example.com"},
		"{apiVersion: k8s.nginx.org/v1, kind: VirtualServer, spec: {host: a.example.com}}":                                                                                {"a.example.com"},
		"{apiVersion: traefik.io/v1alpha1, kind: IngressRoute, spec: {routes: [{match: 'Host(`a.example.com`, `b.example.com`) && Path(`/x`)'}]}}":                        {"a.example.com", "b.example.com"},
		"{apiVersion: traefik.io/v1alpha1, kind: IngressRoute, spec: {routes: [{match: 'HostRegexp(`.*`)'}, {match: 'Host(`a.b`) || Path(`/`)'}]}}":                       {"*", "*"},
		"{apiVersion: traefik.containo.us/v1alpha1, kind: IngressRouteTCP, spec: {routes: [{match: 'Host(`a.example.com`) || host(\"b.example.com\") && !Path(`/x`)'}]}}": {"a.example.com", "b.example.com"},
		"{apiVersion: traefik.containo.us/v1alpha1, kind: IngressRouteTCP, spec: {routes: [{match: 'PathPrefix(`/Host(\"a.example.com\")`)'}]}}":                          {"*"},
		"{apiVersion: traefik.containo.us/v1alpha1, kind: IngressRouteTCP, spec: {routes: [{match: '!Host(`a.example.com`)'}]}}":                                          {"*"},
		"{apiVersion: traefik.containo.us/v1alpha1, kind: IngressRouteTCP, spec: {routes: [{match: 'HostRegexp(`{sub:[a-z]+}.example.com`) || Host(`a.example.com`)'}]}}": {"*"},
		"{apiVersion: traefik.containo.us/v1alpha1, kind: IngressRouteTCP, spec: {routes: [{match: 'HostSNI(`*`)'}]}}":                                                    {"*"},
		"{apiVersion: cert-manager.io/v1, kind: Certificate, spec: {dnsNames: [a.example.com], uris: []}}":                                                                {"a.example.com"},
		"{apiVersion: cert-manager.io/v1, kind: Certificate, spec: {ipAddresses: [192.0.2.1], literalSubject: 'CN=b.example.com', uris: ['spiffe://c/d']}}":               {"192.0.2.1", "*", "*"},
		"{apiVersion: v1, kind: Service, spec: {}}":                                              nil,
		"{apiVersion: v1, kind: Service, spec: {type: LoadBalancer, loadBalancerIP: 192.0.2.1}}": {"192.0.2.1"},
	} {
		assert.Equal(t, hosts, names(object(t, text).Hosts), text)
	}
}

// TestOutside_OfEachKind has what is reached from outside without a host, and what is not.
func TestOutside_OfEachKind(t *testing.T) {
	for text, want := range map[string][]string{
		"{apiVersion: v1, kind: Service, spec: {type: LoadBalancer}}":                                             {"spec.type LoadBalancer"},
		"{apiVersion: v1, kind: Service, spec: {type: NodePort, externalIPs: [192.0.2.1]}}":                       {"spec.externalIPs externalIPs", "spec.type NodePort"},
		"{apiVersion: v1, kind: Service, spec: {type: ClusterIP, externalIPs: []}}":                               nil,
		"{apiVersion: v1, kind: Pod, spec: {hostNetwork: true, containers: [{name: c, image: a}]}}":               {"spec.hostNetwork hostNetwork"},
		"{apiVersion: v1, kind: Pod, spec: {containers: [{name: c, ports: [{containerPort: 1, hostPort: 80}]}]}}": {"spec.containers[0].ports[0].hostPort hostPort"},
		"{apiVersion: example.com/v1, kind: Cache, spec: {expose: {serviceType: NodePort}}}":                      {"spec.expose.serviceType NodePort"},
		"{apiVersion: v1, kind: ConfigMap, data: {type: LoadBalancer}}":                                           nil,
		"{apiVersion: traefik.containo.us/v1alpha1, kind: IngressRouteUDP}":                                       {"kind IngressRouteUDP.traefik.io"},
		"{apiVersion: traefik.containo.us/v1alpha1, kind: Middleware}":                                            nil,
		"{apiVersion: gateway.networking.k8s.io/v1alpha2, kind: TCPRoute}":                                        {"kind TCPRoute.gateway.networking.k8s.io"},
		"{apiVersion: serving.knative.dev/v1, kind: Service}":                                                     {"kind Service.serving.knative.dev"},
		"{apiVersion: ingress.v3.haproxy.org/v3, kind: TCP}":                                                      {"kind TCP.ingress.v3.haproxy.org"},
		"{apiVersion: example.com/v1, kind: WebRoute}":                                                            {"kind WebRoute.example.com"},
		"{apiVersion: example.com/v1, kind: Database}":                                                            nil,
		"{apiVersion: route.openshift.io/v1, kind: Route, spec: {}}":                                              {"kind Route.route.openshift.io"},
		"{apiVersion: route.openshift.io/v1, kind: Route, spec: {host: a.example.com}}":                           nil,
		"{apiVersion: networking.k8s.io/v1, kind: IngressClass}":                                                  nil,
	} {
		var got []string
		for _, way := range object(t, text).Outside {
			got = append(got, way.Field+" "+way.Name)
		}
		assert.Equal(t, want, got, text)
	}
}

// TestApp_CoversEveryField fills all fields of an App's spec that hold images, hosts,
// annotations or numbers of pods, those to come too, and looks for each.
func TestApp_CoversEveryField(t *testing.T) {
	spec := runnerapi.AppSpec{}
	f := filler{}
	f.fill("", reflect.ValueOf(&spec).Elem())
	in := input.App(spec)
	assert.ElementsMatch(t, f.annotations, names(in.Annotations))
	assert.ElementsMatch(t, f.hosts, names(in.Hosts))
	assert.ElementsMatch(t, f.images, images(in.Containers))
	assert.Len(t, in.Counts, 3, "replicas, autoscaling.max and job.parallelism")

	as := read(t, "{apiVersion: pipeops.io/v1alpha1, kind: App, metadata: {annotations: {own: x}}, spec: {image: web, replicas: 3, ingress: {hosts: [{host: a.example.com}]}}}")
	in, err := input.Object(as)
	require.NoError(t, err)
	assert.Equal(t, []string{"a.example.com"}, names(in.Hosts))
	assert.Equal(t, []string{"own"}, names(in.Annotations))
	assert.Equal(t, "spec", in.Containers[0].Field)
	assert.Equal(t, []runnerapi.CountIntent{{Field: "spec.replicas", Pods: 3}}, in.Counts)
}

// filler notes what it has put where.
type filler struct{ annotations, hosts, images []string }

func (f *filler) fill(at string, v reflect.Value) {
	name := at[strings.LastIndex(at, ".")+1:]
	switch v.Kind() {
	case reflect.Struct:
		for n := range v.NumField() {
			f.fill(at+"."+v.Type().Field(n).Name, v.Field(n))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(at, v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		f.fill(at, v.Index(0))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		if strings.HasSuffix(strings.ToLower(name), "annotations") {
			v.SetMapIndex(reflect.ValueOf(at), reflect.ValueOf("x"))
			f.annotations = append(f.annotations, at)
		}
	case reflect.String:
		v.SetString(at)
		switch strings.ToLower(name) {
		case "image":
			f.images = append(f.images, at)
		case "host", "hostname":
			f.hosts = append(f.hosts, at)
		}
	}
}

// TestPlacement_OfEachKind reads it from an App, and from the pods of known and unknown kinds.
func TestPlacement_OfEachKind(t *testing.T) {
	spec := "nodeSelector: {disk: fast, arch: arm64}, tolerations: [{key: gpu, effect: NoSchedule}, {operator: Exists}], priorityClassName: high"
	want := []string{"nodeSelector/arch", "nodeSelector/disk", "toleration/gpu", "toleration/*", "priorityClass/high"}
	in := object(t, "{apiVersion: pipeops.io/v1alpha1, kind: App, spec: {image: web, "+spec+"}}")
	assert.Equal(t, want, names(in.Placement))
	assert.Equal(t, "spec.nodeSelector.arch", in.Placement[0].Field)
	assert.Equal(t, "spec.tolerations[1]", in.Placement[3].Field)

	spec += `, nodeName: n1, affinity: {nodeAffinity: {
  requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: Exists}], matchFields: [{key: metadata.name, operator: In, values: [n1]}]}]},
  preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: cheap, operator: Exists}]}}]}}`
	want = append(want, "node/n1", "nodeSelector/zone", "nodeSelector/metadata.name", "nodeSelector/cheap")
	spec = strings.TrimSuffix(spec, "}") + `,
  podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname}]},
  podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname}, {topologyKey: rack}]}},
topologySpreadConstraints: [{topologyKey: control, whenUnsatisfiable: DoNotSchedule, maxSkew: 1}, {topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule, maxSkew: 1}],
runtimeClassName: gpu, schedulerName: theirs`
	want = append(want, "nodeSelector/kubernetes.io/hostname", "nodeSelector/rack", "nodeSelector/control", "runtimeClass/gpu", "scheduler/theirs")
	for _, kind := range []string{"apiVersion: apps/v1, kind: Deployment", "apiVersion: example.com/v1, kind: Fleet"} {
		in := object(t, "{"+kind+", spec: {template: {spec: {"+spec+"}}}}")
		assert.ElementsMatch(t, want, names(in.Placement), kind)
	}
	gpu := "{image: web, resources: {limits: {cpu: 1, nvidia.com/gpu: 1}, devices: {nvidia.com/gpu: 1}}}"
	in = object(t, "{apiVersion: v1, kind: Pod, spec: {containers: ["+gpu+"], initContainers: [{resources: {requests: {amd.com/gpu: 1}}}]}}")
	assert.ElementsMatch(t, []string{"device/nvidia.com/gpu", "device/amd.com/gpu"}, names(in.Placement))
	in = object(t, "{apiVersion: pipeops.io/v1alpha1, kind: App, spec: {image: web, resources: {devices: {a.b/c: 1}}, initContainers: [{name: i, resources: {devices: {d.e/f: 2}}}]}}")
	assert.Equal(t, []string{"device/a.b/c", "device/d.e/f"}, names(in.Placement))
	assert.Equal(t, "spec.initContainers[0].resources.devices.d.e/f", in.Placement[1].Field)
	assert.Empty(t, object(t, "{apiVersion: v1, kind: ConfigMap, data: {nodeSelector: a}}").Placement)
	assert.Empty(t, object(t, "{apiVersion: v1, kind: Pod, spec: {schedulerName: default-scheduler}}").Placement)
}

// TestCounts_Default: an object that names no number has that of its controller.
func TestCounts_Default(t *testing.T) {
	many := []runnerapi.CountIntent{{Field: "spec.maxReplicaCount", Pods: 100}}
	for _, kind := range []string{"ScaledObject", "ScaledJob"} {
		for spec, want := range map[string][]runnerapi.CountIntent{
			"{}": many, "{maxReplicaCount: null}": many, "{maxReplicaCount: 3}": {{Field: "spec.maxReplicaCount", Pods: 3}},
		} {
			assert.Equal(t, want, object(t, "{apiVersion: keda.sh/v1alpha1, kind: "+kind+", spec: "+spec+"}").Counts, kind+spec)
		}
		assert.Equal(t, many, object(t, "{apiVersion: keda.sh/v1alpha1, kind: "+kind+"}").Counts)
	}
	assert.Empty(t, object(t, "{apiVersion: example.com/v1, kind: ScaledObject, spec: {}}").Counts)
}

// TestPlacement_Spread: only what each node has may be spread over without a rule.
func TestPlacement_Spread(t *testing.T) {
	for spread, want := range map[string][]string{
		"{}": nil, "{when: Required}": nil, "{when: Required, over: [topology.kubernetes.io/zone, kubernetes.io/hostname]}": nil, "{when: Never, over: [control]}": nil,
		"{when: Required, over: [topology.kubernetes.io/region, control]}": {"nodeSelector/control"}, "{over: [control]}": {"nodeSelector/control"},
	} {
		in := object(t, "{apiVersion: pipeops.io/v1alpha1, kind: App, spec: {image: web, spread: "+spread+"}}")
		assert.Equal(t, want, names(in.Placement), spread)
	}
	in := input.App(runnerapi.AppSpec{Image: "web", Spread: &runnerapi.Spread{Over: []string{"kubernetes.io/hostname", "control"}}})
	assert.Equal(t, "spread.over[1]", in.Placement[0].Field)
}

// TestApp_Public reads them from the spec of an App and from its manifest.
func TestApp_Public(t *testing.T) {
	spec := runnerapi.AppSpec{Image: "web", Ingress: &runnerapi.Ingress{Public: true}}
	assert.Equal(t, "ingress.public", input.App(spec).Public)
	in := object(t, "{apiVersion: pipeops.io/v1alpha1, kind: App, metadata: {name: web}, spec: {image: web, ingress: {public: true}}}")
	assert.Equal(t, []string{"web", "spec.ingress.public"}, []string{in.Name, in.Public})
	in = object(t, "{apiVersion: pipeops.io/v1alpha1, kind: App, metadata: {name: web}, spec: {image: web, ingress: {hosts: [{host: a.example.com}]}}}")
	assert.Empty(t, in.Public)
}
