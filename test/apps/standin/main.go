// Command standin stands in for programs that cannot be built here: Alloy, Grafana, OpenCost and
// F5's ingress controller. It has the part of their APIs that their charts and the agent use. The
// name of its file says which of them it is.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const headerTimeout = 10 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, filepath.Base(os.Args[0]))
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, name string) error {
	log.Printf("a test's stand-in for %s", name)
	config, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	switch name {
	case "alloy":
		return alloy(ctx, client)
	case "grafana":
		return serve(ctx, ":3000", map[string]http.HandlerFunc{"/api/health": well})
	case "k8s-sidecar": // beside Grafana
		<-ctx.Done()
		return nil
	case "nginx-ingress":
		return nginxIngress(ctx, client, os.Args[1:])
	case "opencost":
		return serve(ctx, ":9003", map[string]http.HandlerFunc{"/healthz": well, "/allocation": allocations(client)})
	case "opencost-ui":
		return serve(ctx, ":9090", map[string]http.HandlerFunc{"/healthz": well})
	}
	return fmt.Errorf("%s is none of those that it stands in for", name)
}

func well(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }

// serve serves until ctx ends.
func serve(ctx context.Context, address string, handlers map[string]http.HandlerFunc) error {
	mux := http.NewServeMux()
	for path, h := range handlers {
		mux.HandleFunc(path, h)
	}
	return listen(ctx, &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: headerTimeout})
}

// listen has a server serve until ctx ends: HTTPS if it has certificates.
func listen(ctx context.Context, srv *http.Server) error {
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	serve := srv.ListenAndServe
	if srv.TLSConfig != nil {
		serve = func() error { return srv.ListenAndServeTLS("", "") }
	}
	if err := serve(); ctx.Err() == nil {
		return err
	}
	return nil
}
