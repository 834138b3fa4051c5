package controlapi

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/go-chi/chi/v5"
	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/decode"
	"github.com/pipeops/pipeops-vm-agent/internal/httpserver"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	_ "github.com/pipeops/pipeops-vm-agent/internal/problem/humaproblem"
)

// The paths of this wire.
const (
	pathRegister  = "/v1/agents/register"
	pathToken     = "/v1/tokens/check" //nolint:gosec // a path
	pathIdentity  = "/v1/agent/check"
	pathRenew     = "/v1/agent/renew"
	pathHeartbeat = "/v1/agent/heartbeat"
	pathEvents    = "/v1/agent/events"
	pathAudit     = "/v1/agent/audit"
)

const (
	// maxRequestBody bounds what the handler reads: 256 events of 4 KiB each fit.
	maxRequestBody = 1 << 20
	// maxSmallBody is for calls without authentication: a key, a name and some labels.
	maxSmallBody = 64 << 10
	// callTimeout bounds what the backend does for one call.
	callTimeout = 20 * time.Second
	// bodyTimeout bounds how long a caller may take to send its body.
	bodyTimeout = 10 * time.Second
)

// HandlerConfig configures NewHandler. All fields but Log are required.
type HandlerConfig struct {
	Backend Backend
	// Identify returns the agent that the request's client certificate proves. Its error is an
	// *Error; without a certificate it is CodeCertificateUnknown.
	Identify func(*http.Request) (agentID string, err error)
	// Version is the control plane's version, for the OpenAPI document.
	Version string
	// Elsewhere reports whether another API of the same port has the method for the request's path.
	// Nil is for no other API.
	Elsewhere func(r *http.Request, method string) bool
	Log       zerolog.Logger
}

type handler struct {
	backend  Backend
	identify func(*http.Request) (string, error)
	log      zerolog.Logger
}

// NewHandler returns a handler for this wire: its calls and /openapi.json.
func NewHandler(cfg HandlerConfig) http.Handler {
	h := &handler{backend: cfg.Backend, identify: cfg.Identify, log: cfg.Log}
	router := chi.NewMux()
	router.Use(problem.WithRequestID, LogRequests(cfg.Log), WithOrigin, recoverPanic(cfg.Log), withTimeout)
	noCall := httpserver.NoMethod(func(r *http.Request, method string) bool {
		return router.Match(chi.NewRouteContext(), method, r.URL.Path) || cfg.Elsewhere != nil && cfg.Elsewhere(r, method)
	}, func(w http.ResponseWriter, r *http.Request) {
		problem.Write(w, problem.RequestID(r.Context()), problem.Errorf(problem.NotFound,
			"the API's document is at /openapi.json", "there is nothing at %s", r.URL.Path))
	})
	router.NotFound(noCall)
	router.MethodNotAllowed(noCall)
	h.routes(humachi.New(router, apiConfig(cfg.Version)))
	return router
}

// jsonFormat is huma's format with limits. Each call bounds its body's bytes itself.
var jsonFormat = huma.Format{Marshal: huma.DefaultJSONFormat.Marshal, Unmarshal: decode.LimitsFor(math.MaxInt32).JSON}

func apiConfig(version string) huma.Config {
	cfg := huma.DefaultConfig("PipeOps control plane: agents' API", version)
	// No page that loads scripts from elsewhere, no $schema in answers.
	cfg.DocsPath, cfg.SchemasPath, cfg.CreateHooks = "", "", nil
	cfg.Formats = map[string]huma.Format{"application/json": jsonFormat, "json": jsonFormat}
	cfg.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"token":       {Type: "http", Scheme: "bearer", Description: "Enrolment token."},
		"certificate": {Type: "mutualTLS", Description: "The agent's certificate."},
	}
	return cfg
}

func operation(id, path, summary, security string, status int) huma.Operation {
	return huma.Operation{
		OperationID: id, Method: http.MethodPost, Path: path, Summary: summary,
		DefaultStatus: status, MaxBodyBytes: maxBodyOf(path), BodyReadTimeout: bodyTimeout,
		Security: []map[string][]string{{security: {}}},
		Errors: []int{http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden,
			http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity},
	}
}

// maxBodyOf bounds a call's body. Unauthenticated callers get a tighter limit than agents, whose
// certificate is checked before their body.
func maxBodyOf(path string) int64 {
	switch path {
	case pathRegister, pathToken, pathRenew, pathIdentity, pathVisitor:
		return maxSmallBody
	}
	return maxRequestBody
}

type (
	registerInput struct {
		Authorization string `header:"Authorization" hidden:"true"`
		Body          RegisterRequest
	}
	tokenInput struct {
		Authorization string `header:"Authorization" hidden:"true"`
		Body          TokenCheck
	}
	tokenOutput     struct{ Body TokenState }
	renewInput      struct{ Body RenewRequest }
	heartbeatInput  struct{ Body Heartbeat }
	eventsInput     struct{ Body EventsRequest }
	identityOutput  struct{ Body Identity }
	heartbeatOutput struct{ Body HeartbeatAnswer }
	auditInput      struct{ Body AuditRequest }
	auditOutput     struct{ Body AuditAnswer }
)

func (h *handler) routes(api huma.API) {
	huma.Register(api, operation("register", pathRegister, "Register with an enrolment token", "token", http.StatusOK), h.register)
	huma.Register(api, operation("check-token", pathToken, "Say what an enrolment token is good for, without using it", "token", http.StatusOK), h.checkToken)
	agent := huma.NewGroup(api)
	agent.UseMiddleware(h.withPeer)
	huma.Register(agent, operation("check-identity", pathIdentity, "Say whether the certificate is accepted", "certificate", http.StatusNoContent), h.checkIdentity)
	huma.Register(agent, operation("renew", pathRenew, "Renew the certificate", "certificate", http.StatusOK), h.renew)
	huma.Register(agent, operation("heartbeat", pathHeartbeat, "Say that the agent is alive", "certificate", http.StatusOK), h.heartbeat)
	huma.Register(agent, operation("audit", pathAudit, "Hand over records of the audit log", "certificate", http.StatusOK), h.audit)
	huma.Register(agent, operation("events", pathEvents, "Hand over events", "certificate", http.StatusNoContent), h.events)
	h.addRoutes(agent)
	huma.Register(agent, operation("identify-visitor", pathVisitor, "Exchange the code of a visitor who has signed in for who that is", "certificate", http.StatusOK), h.visitor)
}

func (h *handler) register(ctx context.Context, in *registerInput) (*identityOutput, error) {
	token, err := bearer(in.Authorization)
	if err != nil {
		return nil, h.problem(ctx, err)
	}
	id, err := h.backend.Register(ctx, token, in.Body)
	if err != nil {
		return nil, h.problem(ctx, err)
	}
	return &identityOutput{Body: id}, nil
}

func (h *handler) checkToken(ctx context.Context, in *tokenInput) (*tokenOutput, error) {
	token, err := bearer(in.Authorization)
	if err != nil {
		return nil, h.problem(ctx, err)
	}
	state, err := h.backend.CheckToken(ctx, token, in.Body)
	return &tokenOutput{Body: state}, h.problem(ctx, err)
}

// checkIdentity does nothing: withPeer has already answered refused callers.
func (h *handler) checkIdentity(context.Context, *struct{}) (*struct{}, error) { return nil, nil }

// bearer returns the enrolment token in the Authorization header.
func bearer(auth string) (string, error) {
	const scheme = "bearer "
	if len(auth) <= len(scheme) || !strings.EqualFold(auth[:len(scheme)], scheme) {
		return "", Errorf(CodeTokenUnknown, "set AGENT_TOKEN to what `pipeops-controlplane token create` printed",
			"no enrolment token was sent")
	}
	return auth[len(scheme):], nil
}

func (h *handler) renew(ctx context.Context, in *renewInput) (*identityOutput, error) {
	p := peerOf(ctx)
	if p.err != nil && (in.Body.Proof == "" || !p.recoverable) {
		return nil, h.problem(ctx, p.err)
	}
	id, err := h.backend.Renew(ctx, p.agentID, in.Body)
	if err != nil {
		return nil, h.problem(ctx, err)
	}
	return &identityOutput{Body: id}, nil
}

func (h *handler) heartbeat(ctx context.Context, in *heartbeatInput) (*heartbeatOutput, error) {
	answer, err := h.backend.Heartbeat(ctx, peerOf(ctx).agentID, in.Body)
	return &heartbeatOutput{Body: answer}, h.problem(ctx, err)
}

func (h *handler) audit(ctx context.Context, in *auditInput) (*auditOutput, error) {
	answer, err := h.backend.Audit(ctx, peerOf(ctx).agentID, in.Body)
	return &auditOutput{Body: answer}, h.problem(ctx, err)
}

func (h *handler) events(ctx context.Context, in *eventsInput) (*struct{}, error) {
	for i := range in.Body.Events {
		if err := in.Body.Events[i].check(); err != nil {
			return nil, h.problem(ctx, err)
		}
	}
	return nil, h.problem(ctx, h.backend.Events(ctx, peerOf(ctx).agentID, in.Body))
}

// problem adds the call's ID to an error. An error that is not an *Error is logged here, the only
// place that sees it, and answered without its detail.
func (h *handler) problem(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	requestID := problem.RequestID(ctx)
	found, known := problem.Of(err)
	if !errors.As(err, new(*Error)) {
		switch {
		case known:
		case ctx.Err() != nil:
			found = problem.Errorf(problem.Timeout, "try again", "the call took too long")
		default:
			found = problem.Errorf(problem.Internal, "look for the request ID in the control plane's log", "an unexpected error occurred")
		}
		h.log.Error().Err(err).Str("requestId", requestID).Msg("call failed")
	}
	answer := *found
	answer.RequestID = requestID
	return &answer
}
