// Package upstream makes images of programs of others that run in a cluster, each from its Go
// module. The modules' folders pin the versions. A program is compiled when a test first asks for
// it, and kept. That takes minutes, so only tests of the release suite ask, and the set-up of `make
// test-all` compiles all of them beforehand.
package upstream

import (
	"context"
	"fmt"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/pipeops/pipeops-vm-agent/test/cluster"
	"github.com/pipeops/pipeops-vm-agent/test/programs"
)

// Program is a program whose image a cluster can have.
type Program struct {
	cluster.Program
	// prepare makes what the module's folder lacks; nil for nothing.
	prepare func(ctx context.Context) error
}

// The versions are those of the modules.
const (
	TraefikVersion          = "v3.7.13"
	CertManagerVersion      = "v1.21.2"
	RecommenderVersion      = "1.8.1"
	KubeStateMetricsVersion = "v2.20.0"
	PrometheusVersion       = "v3.14.0"
	AlertmanagerVersion     = "v0.31.1"
	NodeExporterVersion     = "v1.12.1"
	ConfigReloaderVersion   = "v0.93.1"
	LokiVersion             = "3.7.8"
	ExternalSecretsVersion  = "v0.16.2"
)

// The images have the names that upstream's charts use, with the modules' versions.
var (
	// Traefik is an ingress controller. It is upstream's main package, without the providers of the
	// DNS challenge: each is another cloud's library, and some of these cannot be downloaded.
	Traefik = Program{
		Program: cluster.Program{
			Module: traefikModule, Package: "github.com/traefik/traefik/v3/cmd/traefik", Ref: "docker.io/traefik:" + TraefikVersion,
		},
		prepare: lego.prepare,
	}
	// CertManager is all of cert-manager's programs: one executable under four names.
	CertManager = []Program{certManager("controller"), certManager("webhook"), certManager("cainjector"), certManager("acmesolver")}
	// Recommender is VPA's program that recommends.
	Recommender = Program{Program: cluster.Program{
		Module: "test/upstream/vpa", Package: "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender",
		Ref: "registry.k8s.io/autoscaling/vpa-recommender:" + RecommenderVersion,
	}}
	// Prometheus keeps metrics and raises alerts. It and what follows are of the versions that its
	// chart has, but for Alertmanager.
	Prometheus = Program{Program: cluster.Program{
		Module: programs.Prometheus.Module, Package: programs.Prometheus.Package, Tags: programs.Prometheus.Tags, Ref: "quay.io/prometheus/prometheus:" + PrometheusVersion,
	}}
	// Alertmanager sends alerts on. It is of the last version whose module has its pages. Its name
	// is not alertmanager, because its chart mounts a volume at /alertmanager.
	Alertmanager = Program{Program: cluster.Program{
		Module: programs.Alertmanager.Module, Package: programs.Alertmanager.Package, Name: "alertmanager-program", Ref: "quay.io/prometheus/alertmanager:" + AlertmanagerVersion,
	}}
	// NodeExporter makes metrics of a machine.
	NodeExporter = Program{Program: cluster.Program{
		Module: programs.Prometheus.Module, Package: "github.com/prometheus/node_exporter", Ref: "quay.io/prometheus/node-exporter:" + NodeExporterVersion,
	}}
	// ConfigReloader has Prometheus read a changed configuration.
	ConfigReloader = Program{Program: cluster.Program{
		Module: programs.Prometheus.Module, Package: "github.com/prometheus-operator/prometheus-operator/cmd/prometheus-config-reloader",
		Ref: "quay.io/prometheus-operator/prometheus-config-reloader:" + ConfigReloaderVersion,
	}}
	// Monitoring are the programs of Prometheus' chart.
	Monitoring = []Program{Prometheus, Alertmanager, NodeExporter, ConfigReloader, KubeStateMetrics}
	// Loki keeps logs.
	Loki = Program{Program: cluster.Program{
		Module: "test/upstream/loki", Package: "github.com/grafana/loki/v3/cmd/loki", Ref: "docker.io/grafana/loki:" + LokiVersion,
	}}
	// ExternalSecrets makes Secrets of values that are kept elsewhere. It is upstream's main
	// package of the last version whose module can be downloaded whole, with two providers.
	ExternalSecrets = Program{
		Program: cluster.Program{
			Module: externalSecretsModule, Package: externalSecrets, Ref: "ghcr.io/external-secrets/external-secrets:" + ExternalSecretsVersion,
		},
		prepare: operator.prepare,
	}
	// KubeStateMetrics makes metrics of objects.
	KubeStateMetrics = Program{Program: cluster.Program{
		Module: programs.Prometheus.Module, Package: "k8s.io/kube-state-metrics/v2", Name: "kube-state-metrics",
		Ref: "registry.k8s.io/kube-state-metrics/kube-state-metrics:" + KubeStateMetricsVersion,
	}}
)

func certManager(name string) Program {
	return Program{Program: cluster.Program{
		Module: "test/upstream/certmanager", Package: ".", Name: name, Ref: "quay.io/jetstack/cert-manager-" + name + ":" + CertManagerVersion,
	}}
}

// All returns the programs.
func All() []Program {
	return slices.Concat([]Program{Traefik, Recommender, ExternalSecrets}, Monitoring, CertManager, []Program{Loki})
}

// Load compiles the program and loads its image into the cluster, under the name Ref.
func (p Program) Load(ctx context.Context, c *cluster.Cluster) error {
	img, err := p.Build(ctx)
	if err != nil {
		return err
	}
	return c.LoadImage(ctx, p.Ref, img)
}

// Build compiles the program, if that was not done before, and makes its image.
func (p Program) Build(ctx context.Context) (v1.Image, error) {
	if p.prepare != nil {
		if err := p.prepare(ctx); err != nil {
			return nil, fmt.Errorf("prepare %s: %w", p.Package, err)
		}
	}
	return cluster.BuildProgram(ctx, p.Program)
}
