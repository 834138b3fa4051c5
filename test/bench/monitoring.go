package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/bench/figures"
	"github.com/pipeops/pipeops-vm-agent/test/charts"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/inputs"
	"github.com/pipeops/pipeops-vm-agent/test/upstream"
)

const (
	monitoringNamespace = "monitoring"
	// scrapedTimeout is how long Prometheus may take to find and scrape all that there is.
	scrapedTimeout = 5 * time.Minute
)

// monitoringSize is what is watched, and for how long.
type monitoringSize struct {
	Apps    int
	Lines   int
	Seconds float64
}

func (s monitoringSize) String() string {
	return fmt.Sprintf("%d Apps, %d log lines a second, for %.0f s", s.Apps, s.Lines, s.Seconds)
}

// measureMonitoring measures the memory of the agent and of monitoring as a small machine has them.
// Its flags follow the word.
func measureMonitoring(ctx context.Context) error {
	var s monitoringSize
	flags := flag.CommandLine
	flags.IntVar(&s.Apps, "apps", 20, "Apps, each with metrics of its own")
	flags.IntVar(&s.Lines, "lines", 20, "lines that all Apps together log a second")
	flags.Float64Var(&s.Seconds, "seconds", 900, "how long to watch after Prometheus has found all")
	end := endFlags()
	if err := flags.Parse(os.Args[2:]); err != nil {
		return err
	}
	if s.Apps < 1 || s.Lines < 1 || s.Seconds < 1 {
		return errors.New("all sizes have to be 1 or more")
	}
	rig, err := newRig(ctx, figures.Monitoring, end.output)
	if err != nil {
		return err
	}
	b := &monitored{monitoringSize: s, rig: rig}
	return b.finish(ctx, b.perform(ctx), s, end)
}

// monitored is one run.
type monitored struct {
	monitoringSize
	*rig
	prometheus, loki string // addresses of their Services
}

func (b *monitored) perform(ctx context.Context) error {
	return b.all(ctx, []stage{
		{"build the programs", func(ctx context.Context) error { return b.build(ctx, harness.Options{}) }},
		{"a Kubernetes", b.kubernetes},
		{"RabbitMQ, the control plane, the agent", b.agent},
		{"images of Prometheus and Loki (compiled the first time)", b.loadImages},
		{"the components, with the values of a small machine", b.install},
		{fmt.Sprintf("%d Apps", b.Apps), b.fill},
		{"Prometheus finds all", b.awaitScraped},
		{fmt.Sprintf("%d lines a second into Loki for %.0f s", b.Lines, b.Seconds), b.measure},
	})
}

func (b *monitored) loadImages(ctx context.Context) error {
	for _, p := range append([]upstream.Program{upstream.Loki}, upstream.Monitoring...) {
		if err := p.Load(ctx, b.sys.Cluster); err != nil {
			return err
		}
	}
	return nil
}

// install installs the two components as the owner of a small machine would have them.
func (b *monitored) install(ctx context.Context) error {
	archives, err := charts.Find()
	if err != nil {
		return err
	}
	wanted := map[string]any{}
	for _, name := range []string{"prometheus", "loki"} {
		values, err := smallValues(name)
		if err != nil {
			return err
		}
		wanted[name] = map[string]any{"mode": "always", "values": map[string]any{name: values}}
	}
	settings, err := yaml.Marshal(map[string]any{"components": wanted})
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, "components.yaml")
	if err := os.WriteFile(file, settings, 0o600); err != nil {
		return err
	}
	_, err = b.sys.Agent(ctx, nil, "component", "install", "--kubeconfig", b.sys.Cluster.Kubeconfig(), "-f", file, "--charts", archives)
	return err
}

// smallValues returns a component's values for a small machine, since the test's own is a large
// one. The test cluster has no volumes, and the modules other versions than the charts.
func smallValues(component string) (values map[string]any, err error) {
	text, err := os.ReadFile(inputs.Path("internal/components/values/" + component + ".small.yaml"))
	if err != nil {
		return nil, err
	}
	if err := yaml.Unmarshal(text, &values); err != nil {
		return nil, err
	}
	set := func(value any, path ...string) {
		err = errors.Join(err, unstructured.SetNestedField(values, value, path...))
	}
	if component == "loki" {
		set(upstream.LokiVersion, "loki", "image", "tag")
		set(false, "singleBinary", "persistence", "enabled")
	} else {
		set(false, "server", "persistentVolume", "enabled")
		set(false, "alertmanager", "persistence", "enabled")
		set(upstream.AlertmanagerVersion, "alertmanager", "image", "tag")
	}
	return values, err
}

func (b *monitored) fill(ctx context.Context) error {
	image, err := b.sys.Cluster.LoadApp(ctx, "hello")
	if err != nil {
		return err
	}
	if _, err := b.client.Namespaces().Set(ctx, name, runnerapi.NamespaceSpec{}, runnerapi.WriteOptions{}); err != nil {
		return err
	}
	return b.each(ctx, b.Apps, "Apps", func(ctx context.Context, i int) error {
		key := runnerapi.Key{Namespace: name, Name: watched(i)}
		app, err := b.client.Apps().Deploy(ctx, key, runnerapi.AppSpec{
			Image: image, Ports: []runnerapi.Port{{Port: appPort}}, Metrics: &runnerapi.MetricsPort{Port: appPort, Path: "/metrics"},
		}, runnerapi.WriteOptions{})
		if err != nil {
			return err
		}
		return b.awaitRollout(ctx, key, app.Generation)
	})
}

const appPort = 8080

func watched(i int) string { return fmt.Sprintf("watched-%d", i) }
