// Package server serves the Runner API in the agent: one type with the calls about each noun.
package server

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/limit"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/problem/humaproblem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/audit"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/decode"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/guard"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/once"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/request"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/kubernetes"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/transport"
)

// Config configures New.
type Config struct {
	Apps       backend.Apps
	Monitoring backend.Monitoring
	Sessions   backend.Sessions
	Secrets    backend.Secrets
	ConfigMaps backend.ConfigMaps
	Namespaces backend.Namespaces
	Cluster    backend.Cluster
	Nodes      backend.Nodes
	Events     backend.Events
	Sources    backend.Sources
	Manifests  backend.Manifests
	Routes     backend.Routes
	// Kubernetes is the cluster's own API. If nil, no request is forwarded to it.
	Kubernetes backend.KubernetesAPI
	Releases   backend.Releases
	Builds     backend.Builds
	// Journal and Outcomes make writes operations. Without a Journal nothing is remembered, which
	// is for tests only.
	Journal  backend.Journal
	Outcomes backend.Outcomes

	// Audit stores what Runners did. Without one nothing is stored, which is for tests only.
	Audit backend.Auditor
	// Recorder records sessions where the policy demands it. Without one these are refused.
	Recorder backend.Recorder
	// Approvals keeps commands that wait for an approval. Without it these are refused.
	Approvals backend.Approvals

	// TrustDomain is the trust domain of the Runners.
	TrustDomain string
	// Version is the agent's version, shown in the OpenAPI document and by /healthz.
	Version string
	// Ready returns why the agent cannot accept calls now, or nil. A nil Ready means always ready.
	Ready func(context.Context) error
	Log   zerolog.Logger

	// Limits bounds the calls and bodies of one Runner.
	Limits transport.Limits
	// Observation is for metrics and traces.
	Observation Observation

	// CallTimeout bounds a call that neither waits nor streams; DefaultCallTimeout
	// when zero.
	CallTimeout time.Duration
}

// server is what is done about each request before its call.
type server struct {
	trustDomain string
	observation Observation
	calls       *limit.Shares // by Runner
	log         zerolog.Logger
}

// New returns the handler of the Runner API. Serve it on connections made with ServerTLS. A
// client without a verified Runner certificate gets only the health calls and the OpenAPI document.
// The policy decides about every other call; if it is nil, each of them is refused.
func New(policy backend.Policy, c Config) http.Handler {
	router, _ := newRouter(policy, c)
	return router
}

// OpenAPI returns the OpenAPI 3.1 document of the Runner API.
func OpenAPI(version string) ([]byte, error) {
	_, api := newRouter(nil, Config{Version: version, Log: zerolog.Nop()})
	return document(api)
}

func newRouter(policy backend.Policy, c Config) (chi.Router, huma.API) {
	c.CallTimeout = cmp.Or(c.CallTimeout, runnerapi.DefaultCallTimeout)
	l := c.Limits.WithDefaults()
	s := &server{trustDomain: c.TrustDomain, observation: c.Observation, calls: limit.NewShares(l.Calls, l.CallsPerRunner), log: c.Log}
	shared := newCalls(backend.OrDeny(policy), c, l)
	r := chi.NewRouter()
	r.Use(kubernetes.ByName, request.BodyDeadline, problem.WithRequestID, s.observed, s.identify, s.logCalls, s.recoverPanics, middleware.GetHead)
	r.NotFound(s.noRoute)
	r.MethodNotAllowed(s.noMethod(r))
	mountHealth(r, c.Version, c.Ready, nil)
	r.Group(func(r chi.Router) {
		r.Use(s.shared, shared.guard.Audit.Calls, s.authenticate, shared.guard.Check)
		shared.api = humachi.New(r, openAPIConfig(c.Version))
		for _, n := range nouns(c, shared) {
			n.routes()
		}
		kubernetesRoutes(r, shared.api.OpenAPI(), shared.guard.Kubernetes)
		addSamples(shared.api.OpenAPI())
		finishDocument(shared.api.OpenAPI())
	})
	doc := sync.OnceValue(func() []byte { // it takes longer than all else here
		doc, err := document(shared.api)
		if err != nil { // the types cannot be described: the first test shows it
			panic(fmt.Sprintf("runner API: OpenAPI document: %v", err))
		}
		return doc
	})
	r.Get("/openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/openapi+json")
		_, _ = w.Write(doc()) // the caller is gone if this fails
	})
	return r, shared.api
}

func newCalls(policy backend.Policy, c Config, l transport.Limits) *calls {
	large := request.NewBodies(l.Bodies, l.BodiesPerRunner)
	log := &audit.Log{Auditor: c.Audit, Policy: policy, Logger: c.Log}
	return &calls{
		timeout: c.CallTimeout, stall: l.Stall, bodies: large, log: c.Log,
		commands: &once.Commands{Journal: c.Journal, Log: c.Log},
		guard: &guard.Guard{
			Policy: policy, Approvals: c.Approvals, Journal: c.Journal, Records: c.Recorder != nil, Audit: log, Bodies: large, Log: c.Log,
			Kubernetes: &kubernetes.API{
				Cluster: c.Kubernetes, Policy: policy, Audit: log, Bodies: large,
				Streams: limit.NewShares(l.Streams, l.StreamsPerRunner), Log: c.Log,
			},
		},
	}
}

// noun has the calls about one kind of thing.
type noun interface{ routes() }

func nouns(c Config, s *calls) []noun {
	work := &appWork{calls: s, apps: c.Apps, outcomes: c.Outcomes}
	return []noun{
		&appCalls{work}, &lifecycleCalls{work}, &operationCalls{s, c.Journal, c.Outcomes, c.Releases}, &eventCalls{work}, &logCalls{work},
		&jobCalls{work}, &pipelineCalls{work}, &sessionCalls{s, c.Sessions, c.Recorder, s.guard.Audit},
		&secretCalls{s, c.Secrets}, &configMapCalls{s, c.ConfigMaps}, &metricsCalls{s, c.Monitoring}, &monitoringCalls{s, c.Monitoring}, &namespaceCalls{s, c.Namespaces},
		&clusterCalls{s, c.Cluster}, &nodeCalls{s, c.Nodes, c.Events}, &sourceCalls{s, c.Sources}, &manifestCalls{s, c.Manifests}, &joinCalls{s, c.Nodes}, &routeCalls{s, c.Routes},
		&releaseCalls{s, c.Releases}, &auditCalls{s, c.Audit}, &buildCalls{s, c.Builds},
	}
}

func document(api huma.API) ([]byte, error) {
	return humaproblem.Document(api.OpenAPI(), &huma.Server{
		URL:         "https://{agent}",
		Description: "An agent, by its name in TLS. Connect to the address of an endpoint, and send its serverName as SNI and Host.",
		Variables: map[string]*huma.ServerVariable{"agent": {
			Default:     "AGENT_ID.agents.example.com",
			Description: "serverName of an endpoint in GET /v1/agents/NAME_OR_ID of the control plane.",
		}},
	})
}

// openAPIConfig returns huma's configuration without its documentation page, which loads scripts
// from a public CDN, and without the $schema links in answers.
func openAPIConfig(version string) huma.Config {
	c := huma.DefaultConfig("PipeOps Runner API", version)
	c.OpenAPIPath, c.DocsPath, c.SchemasPath, c.CreateHooks = "", "", "", nil
	c.RejectUnknownQueryParameters = true
	c.Formats = map[string]huma.Format{"application/json": decode.JSON, "json": decode.JSON}
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
