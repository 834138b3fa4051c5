package main

import (
	"context"
	"net"
	"time"

	"github.com/cert-manager/cert-manager/pkg/controller"
	"github.com/cert-manager/cert-manager/pkg/healthz"
	logf "github.com/cert-manager/cert-manager/pkg/logs"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/resource"

	// Each registers itself.
	_ "github.com/cert-manager/cert-manager/pkg/controller/acmechallenges"
	_ "github.com/cert-manager/cert-manager/pkg/controller/acmeorders"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificate-shim/ingresses"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/acme"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/ca"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/selfsigned"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/issuing"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/keymanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/readiness"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/requestmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/revisionmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/trigger"
	_ "github.com/cert-manager/cert-manager/pkg/controller/clusterissuers"
	_ "github.com/cert-manager/cert-manager/pkg/controller/issuers"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/acme"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/ca"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/selfsigned"
)

const (
	healthAddress = ":9403"
	// workers is how many objects each controller works at.
	workers = 5
)

func runController(ctx context.Context, args []string) error {
	opts := defaults()
	fs := flags()
	fs.StringVar(&opts.ClusterResourceNamespace, "cluster-resource-namespace", "", "namespace of Secrets of ClusterIssuers")
	fs.StringVar(&opts.HTTP01SolverImage, "acme-http01-solver-image", "", "image of the solver")
	fs.StringSliceVar(&opts.HTTP01SolverNameservers, "acme-http01-solver-nameservers", nil, "DNS servers for the check of a challenge")
	fs.IntVar(&opts.MaxConcurrentChallenges, "max-concurrent-challenges", 60, "challenges at a time")
	if err := fs.Parse(args); err != nil {
		return err
	}
	factory, err := controller.NewContextFactory(ctx, opts)
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", healthAddress)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return healthz.NewServer(time.Minute).Start(ctx, listener) })
	for name, build := range controller.Known() {
		run, err := build(factory)
		if err != nil {
			return err
		}
		group.Go(func() error { return run.Run(workers, logf.NewContext(ctx, logf.FromContext(ctx, name))) })
	}
	if err := startInformers(ctx, factory); err != nil {
		return err
	}
	return group.Wait()
}

func startInformers(ctx context.Context, factory *controller.ContextFactory) error {
	shared, err := factory.Build()
	if err != nil {
		return err
	}
	shared.SharedInformerFactory.Start(ctx.Done())
	shared.KubeSharedInformerFactory.Start(ctx.Done())
	shared.HTTP01ResourceMetadataInformersFactory.Start(ctx.Done())
	return nil
}

// defaults are those of upstream's flags.
func defaults() controller.ContextOptions {
	return controller.ContextOptions{
		KubernetesAPIQPS: 20, KubernetesAPIBurst: 50,
		ACMEOptions: controller.ACMEOptions{
			HTTP01SolverResourceRequestCPU: resource.MustParse("10m"), HTTP01SolverResourceRequestMemory: resource.MustParse("64Mi"),
			HTTP01SolverResourceLimitsCPU: resource.MustParse("100m"), HTTP01SolverResourceLimitsMemory: resource.MustParse("64Mi"),
			ACMEHTTP01SolverRunAsNonRoot: true, DNS01CheckRetryPeriod: 10 * time.Second,
		},
		IngressShimOptions: controller.IngressShimOptions{
			DefaultIssuerKind: "Issuer", DefaultIssuerGroup: "cert-manager.io",
			DefaultAutoCertificateAnnotations: []string{"kubernetes.io/tls-acme"},
		},
		CertificateOptions: controller.CertificateOptions{
			CopiedAnnotationPrefixes:                 []string{"*", "-kubectl.kubernetes.io/", "-fluxcd.io/", "-argocd.argoproj.io/"},
			CertificateRequestMinimumBackoffDuration: time.Hour, CertificateRequestMaximumBackoffDuration: 32 * time.Hour,
		},
	}
}
