// Package server serves the Runner API in the agent. The interfaces in backend.go hide what the calls
// do, so it depends on no Kubernetes client.
package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/limit"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	_ "github.com/pipeops/pipeops-vm-agent/internal/problem/humaproblem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Limits of the server.
const (
	maxSmallBody = 64 << 10
	bodyTimeout  = 30 * time.Second // for a body to arrive
	writeTimeout = time.Minute      // for an answer that is not a stream to be read
)

// Config configures New.
type Config struct {
	Apps       Apps
	Meter      AppMeter
	Insides    Insides
	Secrets    Secrets
	ConfigMaps ConfigMaps
	Namespaces Namespaces
	Clusters   Clusters
	Nodes      Nodes
	Sources    Sources
	Manifests  Manifests
	Joins      Joins
	// Kubernetes is the cluster's own API. If nil, no request is forwarded to it.
	Kubernetes KubernetesAPI
	Releases   Releases
	Builds     Builds
	// Journal and Outcomes make writes operations. Without a Journal nothing is remembered, which
	// is for tests only.
	Journal  Journal
	Outcomes Outcomes

	// Policy decides about every call. Without one everything is allowed, which is for tests only.
	Policy Policy
	// Audit stores what Runners did. Without one nothing is stored, which is for tests only.
	Audit Auditor
	// Recorder records sessions where the policy demands it. Without one these are refused.
	Recorder Recorder
	// Approvals keeps commands that wait for an approval. Without it these are refused.
	Approvals Approvals

	// TrustDomain is the trust domain of the Runners.
	TrustDomain string
	// Version is the agent's version, shown in the OpenAPI document and by /healthz.
	Version string
	// Ready returns why the agent cannot accept calls now, or nil. A nil Ready means always ready.
	Ready func(context.Context) error
	Log   zerolog.Logger

	// Limits bounds the calls and bodies of one Runner.
	Limits Limits
	// Observation is for metrics and traces.
	Observation Observation

	// CallTimeout bounds a call that neither waits nor streams; DefaultCallTimeout
	// when zero.
	CallTimeout time.Duration
}

// server holds what the handlers share.
type server struct {
	Config
	api     huma.API
	calls   *limit.Shares // by Runner
	bodies  *limit.Shares // by Runner
	streams *limit.Shares // of the Kubernetes API, by Runner
}

// New returns the handler of the Runner API. Serve it on connections made with ServerTLS. A
// client without a verified Runner certificate gets only the health calls and the OpenAPI document.
func New(c Config) http.Handler {
	router, _ := newRouter(c)
	return router
}

// OpenAPI returns the OpenAPI 3.1 document of the Runner API.
func OpenAPI(version string) ([]byte, error) {
	_, s := newRouter(Config{Version: version, Log: zerolog.Nop()})
	return s.document()
}

func newRouter(c Config) (chi.Router, *server) {
	if c.CallTimeout == 0 {
		c.CallTimeout = runnerapi.DefaultCallTimeout
	}
	l := c.Limits.withDefaults()
	s := &server{Config: c, calls: limit.NewShares(l.Calls, l.CallsPerRunner), bodies: limit.NewShares(l.Bodies, l.BodiesPerRunner), streams: limit.NewShares(l.Streams, l.StreamsPerRunner)}
	r := chi.NewRouter()
	r.Use(byName, bodyDeadline, problem.WithRequestID, s.observed, s.identify, s.logCalls, s.recoverPanics, middleware.GetHead)
	r.NotFound(s.noRoute)
	r.MethodNotAllowed(s.noMethod(r))
	mountHealth(r, c.Version, c.Ready, nil)
	r.Group(func(r chi.Router) {
		r.Use(s.shared, s.audited, s.authenticate, s.guard)
		s.api = humachi.New(r, openAPIConfig(c.Version))
		s.appRoutes()
		s.lifecycleRoutes()
		s.eventRoutes()
		s.logRoutes()
		s.jobRoutes()
		s.pipelineRoutes()
		s.insideRoutes()
		s.secretRoutes()
		s.configMapRoutes()
		s.metricsRoutes()
		s.namespaceRoutes()
		s.clusterRoutes()
		s.nodeRoutes()
		s.sourceRoutes()
		s.manifestRoutes()
		s.joinRoutes()
		s.kubernetesRoutes(r.MethodFunc)
		s.releaseRoutes()
		s.auditRoutes()
		s.buildRoutes()
		addSamples(s.api.OpenAPI())
		finishDocument(s.api.OpenAPI())
	})
	doc, err := s.document()
	if err != nil { // the types cannot be described: the first test shows it
		panic(fmt.Sprintf("runner API: OpenAPI document: %v", err))
	}
	r.Get("/openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/openapi+json")
		_, _ = w.Write(doc) // the caller is gone if this fails
	})
	return r, s
}

func (s *server) document() ([]byte, error) {
	doc, err := json.MarshalIndent(s.api.OpenAPI(), "", "  ")
	return append(doc, '\n'), err
}

// openAPIConfig returns huma's configuration without its documentation page, which loads scripts
// from a public CDN, and without the $schema links in answers.
func openAPIConfig(version string) huma.Config {
	c := huma.DefaultConfig("PipeOps Runner API", version)
	c.OpenAPIPath, c.DocsPath, c.SchemasPath, c.CreateHooks = "", "", "", nil
	c.RejectUnknownQueryParameters = true
	c.Formats = map[string]huma.Format{"application/json": jsonFormat, "json": jsonFormat}
	c.Info.Description = "What a Runner can do with one agent's cluster. " +
		"Errors are problem details (RFC 9457) with a stable code, the field at fault and a fix. " +
		"403 with the code approval_required names a request that the cluster's owner can approve; the same command sent again passes once then. " +
		"Every answer carries Request-Id; every write takes dryRun and Idempotency-Key. " +
		"HEAD works wherever GET does. Any path may answer 404 and, with Allow, 405."
	c.Info.License = &huma.License{Name: "MIT", Identifier: "MIT"}
	c.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"runnerCertificate": {
			Type:        "mutualTLS",
			Description: "Client certificate of the control plane's CA with the URI spiffe://TRUST_DOMAIN/runner/NAME.",
		},
	}
	c.Security = []map[string][]string{{"runnerCertificate": {}}}
	return c
}
