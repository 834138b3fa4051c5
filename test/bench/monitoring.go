package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/bench/run"
	"github.com/pipeops/pipeops-vm-agent/test/charts"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/inputs"
	"github.com/pipeops/pipeops-vm-agent/test/upstream"
)

// monitoring measures the memory of the agent and of monitoring as a small machine has them.
type monitoring struct {
	Apps    int `flag:"apps" usual:"20" short:"2" help:"Apps, each with its own metrics"`
	Lines   int `flag:"lines" usual:"20" help:"lines that all Apps together log a second"`
	Seconds int `flag:"seconds" usual:"900" short:"30" help:"how long to watch after Prometheus has found all"`

	rig
	prometheus, loki string // addresses of their Services
}

const (
	monitoringNamespace = "monitoring"
	// scrapedTimeout is how long Prometheus may take to find and scrape all that there is.
	scrapedTimeout = 5 * time.Minute
	// memoryInterval is how often the kubelet is asked, which looks at containers every ten
	// seconds.
	memoryInterval = 10 * time.Second
	appPort        = 8080
)

func (b *monitoring) Measure(ctx context.Context, r *run.Run) {
	b.begin(ctx, r, harness.Options{})
	r.Step("images of Prometheus and Loki (compiled the first time)", func() {
		for _, p := range append([]upstream.Program{upstream.Loki}, upstream.Monitoring...) {
			run.Check(p.Load(ctx, b.sys.Cluster))
		}
	})
	r.Step("the components, with the values of a small machine", func() { b.install(ctx) })
	r.Step(fmt.Sprintf("%d Apps", b.Apps), func() { b.fill(ctx) })
	r.Step("Prometheus finds all", func() { b.awaitScraped(ctx) })
	r.Step(fmt.Sprintf("%d lines a second into Loki for %d s", b.Lines, b.Seconds), func() { b.measure(ctx) })
}

// install installs the two components as the owner of a small machine would have them.
func (b *monitoring) install(ctx context.Context) {
	wanted := map[string]any{}
	for _, name := range []string{"prometheus", "loki"} {
		wanted[name] = map[string]any{"mode": "always", "values": map[string]any{name: smallValues(name)}}
	}
	file := filepath.Join(b.sys.Dir, "components.yaml")
	run.Check(os.WriteFile(file, run.Must(yaml.Marshal(map[string]any{"components": wanted})), 0o600))
	run.Must(b.sys.Agent(ctx, nil, "component", "install", "--kubeconfig", b.sys.Cluster.Kubeconfig(), "-f", file,
		"--charts", run.Must(charts.Find())))
}

// smallValues returns a component's values for a small machine, since the test's own is a large
// one. The test cluster has no volumes, and the modules other versions than the charts.
func smallValues(component string) (values map[string]any) {
	run.Check(yaml.Unmarshal(run.Must(os.ReadFile(inputs.Path("internal/components/values/"+component+".small.yaml"))), &values))
	set := func(value any, path ...string) { run.Check(unstructured.SetNestedField(values, value, path...)) }
	if component == "loki" {
		set(upstream.LokiVersion, "loki", "image", "tag")
		set(false, "singleBinary", "persistence", "enabled")
	} else {
		set(false, "server", "persistentVolume", "enabled")
		set(false, "alertmanager", "persistence", "enabled")
		set(upstream.AlertmanagerVersion, "alertmanager", "image", "tag")
	}
	return values
}

func (b *monitoring) fill(ctx context.Context) {
	image := run.Must(b.sys.Cluster.LoadApp(ctx, "hello"))
	b.namespace(ctx, name)
	b.Each(ctx, b.Apps, "Apps", func(ctx context.Context, i int) {
		b.deploy(ctx, watched(i), runnerapi.AppSpec{
			Image: image, Ports: []runnerapi.Port{{Port: appPort}}, Metrics: &runnerapi.MetricsPort{Port: appPort, Path: "/metrics"},
		})
	})
}

func watched(i int) runnerapi.Key { return named(name, "watched", i) }

// awaitScraped waits until Prometheus has scraped all targets that it found, among them all Apps,
// and Loki takes lines.
func (b *monitoring) awaitScraped(ctx context.Context) {
	address := func(service string) string {
		s := run.Must(b.kube.CoreV1().Services(monitoringNamespace).Get(ctx, service, metav1.GetOptions{}))
		return "http://" + net.JoinHostPort(s.Spec.ClusterIP, strconv.Itoa(int(s.Spec.Ports[0].Port)))
	}
	b.prometheus, b.loki = address("prometheus-server"), address("loki")
	b.Await(ctx, scrapedTimeout, tick, func() {
		if apps := b.query(ctx, `count(up{job="pods", namespace="`+name+`"} == 1)`); int(apps) < b.Apps {
			run.Failf("of %d Apps, %.0f are scraped", b.Apps, apps)
		}
		if down := b.query(ctx, `count(up == 0) or vector(0)`); down > 0 {
			run.Failf("%.0f targets cannot be scraped", down)
		}
		b.push(ctx)
	})
}

// query returns the only value of an instant query.
func (b *monitoring) query(ctx context.Context, query string) float64 {
	var answer struct {
		Data struct {
			Result []struct{ Value [2]any }
		}
	}
	run.Check(json.Unmarshal(call(ctx, http.MethodGet, b.prometheus+"/api/v1/query?query="+url.QueryEscape(query), nil), &answer))
	if len(answer.Data.Result) != 1 {
		run.Failf("%s has %d values", query, len(answer.Data.Result))
	}
	return run.Must(strconv.ParseFloat(fmt.Sprint(answer.Data.Result[0].Value[1]), 64))
}

// push sends a second's lines to Loki, with the labels that our configuration of Alloy sets. The
// benchmark sends them itself, because Alloy is not available as a Go module.
func (b *monitoring) push(ctx context.Context) {
	var streams []any
	for i := range b.Lines {
		app := watched(i % b.Apps).Name
		line := strings.Repeat("a line that an App logs. ", 8)
		streams = append(streams, map[string]any{
			"stream": map[string]string{"namespace": name, "app": app, "container": app, "pod": app + "-0"},
			"values": [][]string{{strconv.FormatInt(time.Now().UnixNano(), 10), line}},
		})
	}
	call(ctx, http.MethodPost, b.loki+"/loki/api/v1/push", run.Must(json.Marshal(map[string]any{"streams": streams})))
}

func call(ctx context.Context, method, at string, body []byte) []byte {
	r := run.Must(http.NewRequestWithContext(ctx, method, at, bytes.NewReader(body)))
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	run.Check(err)
	defer func() { _ = resp.Body.Close() }()
	text := run.Must(io.ReadAll(resp.Body))
	if resp.StatusCode/100 != 2 {
		run.Failf("%s: %s: %s", at, resp.Status, text)
	}
	return text
}

// measure logs and looks until the time is over. The figures of single parts are those of the
// moment at which all together needed most.
func (b *monitoring) measure(ctx context.Context) {
	end := time.Now().Add(time.Duration(b.Seconds) * time.Second)
	look := time.Now()
	most := map[string]int64{}
	for time.Now().Before(end) {
		b.push(ctx)
		if time.Since(look) >= memoryInterval {
			look = time.Now()
			if now := b.memory(ctx); now["total"] > most["total"] {
				most = now
			}
		}
		run.Rest(ctx, time.Second)
	}
	for id, n := range most {
		b.Add(id, run.Mebibytes(n))
	}
	b.Add("series", b.query(ctx, "prometheus_tsdb_head_series"))
	var restarts int32
	for _, p := range run.Must(b.kube.CoreV1().Pods(monitoringNamespace).List(ctx, metav1.ListOptions{})).Items {
		for _, c := range p.Status.ContainerStatuses {
			restarts += c.RestartCount
		}
	}
	b.Add("restarts", float64(restarts))
}

// memory returns what containers have now, by figure: the working set, which is what a limit counts
// (https://kubernetes.io/docs/reference/instrumentation/node-metrics/).
func (b *monitoring) memory(ctx context.Context) map[string]int64 {
	all := map[string]int64{}
	for _, node := range run.Must(b.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})).Items {
		get := b.kube.CoreV1().RESTClient().Get().Resource("nodes").Name(node.Name).SubResource("proxy").Suffix("stats/summary")
		var summary struct {
			Pods []struct {
				PodRef     struct{ Namespace string }
				Containers []struct {
					Name   string
					Memory struct{ WorkingSetBytes int64 }
				}
			}
		}
		run.Check(json.Unmarshal(run.Must(get.DoRaw(ctx)), &summary))
		for _, pod := range summary.Pods {
			for _, c := range pod.Containers {
				if ns := pod.PodRef.Namespace; ns == "pipeops" {
					c.Name = "agent"
				} else if ns != monitoringNamespace {
					continue
				}
				all["total"] += c.Memory.WorkingSetBytes
				for _, id := range []string{"agent", "reload", "prometheus-server", "loki", "alertmanager", "kube-state-metrics", "node-exporter"} {
					if strings.Contains(c.Name, id) { // prometheus-server-configmap-reload is the second
						all[id] += c.Memory.WorkingSetBytes
						break
					}
				}
			}
		}
	}
	return all
}
