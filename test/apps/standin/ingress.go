package main

import (
	"context"
	"crypto/tls"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	networkinglisters "k8s.io/client-go/listers/networking/v1"
	"k8s.io/client-go/tools/cache"
)

const (
	idleTimeout = time.Minute
	mostHeaders = 32 << 10
	// resync is how soon a status that could not be written is tried again.
	resync = 5 * time.Second
)

// controller has the Ingresses of a class, and what they name. It elects no leader: our values have
// one pod.
type controller struct {
	client    kubernetes.Interface
	class     string
	ingresses networkinglisters.IngressLister
	secrets   corelisters.SecretLister
	service   corelisters.ServiceNamespaceLister // where the status gets its addresses from
	upstream  http.RoundTripper
	changed   chan struct{}
}

// nginxIngress does what the arguments of F5's chart say: it serves the Ingresses of a class, and
// reports the addresses of its Service as theirs. It is ready once it has listed all of them.
func nginxIngress(ctx context.Context, client kubernetes.Interface, args []string) error {
	flags := flagsOf(args)
	c := &controller{
		client: client, class: flags["ingress-class"], changed: make(chan struct{}, 1),
		upstream: &http.Transport{DialContext: (&net.Dialer{Timeout: headerTimeout}).DialContext, ResponseHeaderTimeout: idleTimeout},
	}
	if err := c.watch(ctx, os.Getenv("POD_NAMESPACE"), flags["external-service"]); err != nil {
		return err
	}
	serving, ctx := errgroup.WithContext(ctx)
	if _, wanted := flags["report-ingress-status"]; wanted {
		serving.Go(func() error { c.report(ctx, flags["external-service"]); return nil })
	}
	serving.Go(func() error { return listen(ctx, c.server(":80", nil)) })
	serving.Go(func() error {
		return listen(ctx, c.server(":443", &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.certificate}))
	})
	serving.Go(func() error {
		return serve(ctx, ":"+flags["ready-status-port"], map[string]http.HandlerFunc{"/nginx-ready": well})
	})
	return serving.Wait()
}

// flagsOf reads -name=value and -name. Most flags of F5's mean nothing here.
func flagsOf(args []string) map[string]string {
	flags := map[string]string{}
	for _, a := range args {
		name, value, _ := strings.Cut(strings.TrimLeft(a, "-"), "=")
		flags[name] = value
	}
	return flags
}

func (c *controller) server(address string, config *tls.Config) *http.Server {
	return &http.Server{
		Addr: address, Handler: c, TLSConfig: config,
		ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: mostHeaders,
	}
}

// watch returns once all Ingresses, the Secrets with certificates and the Service are known.
func (c *controller) watch(ctx context.Context, namespace, service string) error {
	where := func(selector fields.Selector) informers.SharedInformerOption {
		return informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.FieldSelector = selector.String() })
	}
	ingresses := informers.NewSharedInformerFactory(c.client, resync)
	secrets := informers.NewSharedInformerFactoryWithOptions(c.client, 0, where(fields.OneTermEqualSelector("type", string(corev1.SecretTypeTLS))))
	services := informers.NewSharedInformerFactoryWithOptions(c.client, 0,
		informers.WithNamespace(namespace), where(fields.OneTermEqualSelector(metav1.ObjectNameField, service)))
	c.ingresses = ingresses.Networking().V1().Ingresses().Lister()
	c.secrets = secrets.Core().V1().Secrets().Lister()
	c.service = services.Core().V1().Services().Lister().Services(namespace)

	handler := cache.ResourceEventHandlerFuncs{AddFunc: c.change, UpdateFunc: func(_, o any) { c.change(o) }}
	for _, i := range []cache.SharedIndexInformer{ingresses.Networking().V1().Ingresses().Informer(), services.Core().V1().Services().Informer()} {
		if _, err := i.AddEventHandler(handler); err != nil {
			return err
		}
	}
	for _, f := range []informers.SharedInformerFactory{ingresses, secrets, services} {
		f.Start(ctx.Done())
	}
	for _, f := range []informers.SharedInformerFactory{ingresses, secrets, services} {
		f.WaitForCacheSync(ctx.Done())
	}
	return ctx.Err()
}

func (c *controller) change(any) {
	select {
	case c.changed <- struct{}{}:
	default: // report is yet to look
	}
}

// report gives the Ingresses the addresses of the Service, until ctx ends.
func (c *controller) report(ctx context.Context, service string) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.changed:
		}
		s, err := c.service.Get(service)
		if err != nil {
			log.Print(err)
			continue
		}
		for _, in := range c.ofClass() {
			if err := c.reportOn(ctx, in, addresses(s)); err != nil {
				log.Print(err)
			}
		}
	}
}

func (c *controller) reportOn(ctx context.Context, in *networkingv1.Ingress, at []networkingv1.IngressLoadBalancerIngress) error {
	if equality.Semantic.DeepEqual(in.Status.LoadBalancer.Ingress, at) {
		return nil
	}
	in = in.DeepCopy()
	in.Status.LoadBalancer.Ingress = at
	_, err := c.client.NetworkingV1().Ingresses(in.Namespace).UpdateStatus(ctx, in, metav1.UpdateOptions{})
	return err
}

func addresses(s *corev1.Service) []networkingv1.IngressLoadBalancerIngress {
	var all []networkingv1.IngressLoadBalancerIngress
	for _, a := range s.Status.LoadBalancer.Ingress {
		all = append(all, networkingv1.IngressLoadBalancerIngress{IP: a.IP, Hostname: a.Hostname})
	}
	return all
}

func (c *controller) ofClass() []*networkingv1.Ingress {
	all, err := c.ingresses.List(labels.Everything())
	if err != nil { // a lister over a cache has none
		log.Print(err)
	}
	var ours []*networkingv1.Ingress
	for _, in := range all {
		if in.Spec.IngressClassName != nil && *in.Spec.IngressClassName == c.class {
			ours = append(ours, in)
		}
	}
	return ours
}
