package operatorapi

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"path"
	"reflect"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/go-chi/chi/v5"
	"github.com/rs/zerolog"
	kjson "sigs.k8s.io/json"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/decode"
	"github.com/pipeops/pipeops-vm-agent/internal/httpserver"
	"github.com/pipeops/pipeops-vm-agent/internal/limit"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/problem/humaproblem"
)

const (
	// maxBody bounds a request's body: a signed release fits.
	maxBody = 1 << 20
	// bodyTimeout bounds how long a body may take to arrive, callTimeout a call.
	bodyTimeout, callTimeout = 10 * time.Second, 40 * time.Second
)

// DocumentPath is where the OpenAPI document is.
const DocumentPath = Prefix + "openapi.json"

// Caller is the sender of a request.
type Caller struct {
	// Operator has the role; its Name is also set for one that is refused.
	Operator store.Operator
	// Certificate is the serial number, in hexadecimal.
	Certificate string
	// Presented is the certificate; nil for a caller without one.
	Presented *x509.Certificate
	// Proven is the name for the audit log of anyone with a certificate of ours, such as
	// runner/builder; empty for others.
	Proven string
}

// Config configures Open.
type Config struct {
	// Identify returns the caller, with an error unless that is an operator with valid credentials.
	Identify func(*http.Request) (Caller, error)
	Settings administration.Settings
	// Name is of this control plane, for the audit log.
	Name, Version string
	Log           zerolog.Logger
}

// Server serves the operator API.
type Server struct {
	http.Handler
	performer performer
	// refusedTokens are the refused ID tokens that have proven someone (true), and others.
	refusedTokens *limit.Failures[bool]
	// visits are the records of sign-ins of visitors: of identified ones (true), and others.
	visits *limit.Failures[bool]
}

// server is what all calls share.
type server struct {
	performer
	store    *store.Store
	identify func(*http.Request) (Caller, error)
	refused  *limit.Failures[string] // by Caller.refusedAs
	api      huma.API
}

// NewServer returns the server for a control plane's data, which the Admin has opened. Close closes
// it.
func NewServer(admin *administration.Admin, cfg Config) *Server {
	admin = admin.With(cfg.Settings)
	p := performer{newRecorder(admin.Database(), cfg.Name, admin.Now, cfg.Log), admin, cfg.Log}
	s := &server{performer: p, store: admin.Database(), identify: cfg.Identify, refused: limit.NewFailures[string](refusalBurst, refusalEvery)}
	return &Server{Handler: s.router(cfg.Version), performer: p, refusedTokens: limit.NewFailures[bool](refusalBurst, refusalEvery), visits: limit.NewFailures[bool](visitBurst, visitEvery)}
}

// Run writes the audit log until the context ends.
func (s *Server) Run(ctx context.Context) error { return s.performer.recorder.log.Run(ctx) }

// Close closes the data.
func (s *Server) Close() error { return s.performer.admin.Close() }

// OpenAPI returns the document of the operator API.
func OpenAPI(version string) ([]byte, error) {
	s := &server{}
	s.router(version)
	return document(s.api)
}

func document(api huma.API) ([]byte, error) {
	return humaproblem.Document(api.OpenAPI(), humaproblem.ControlPlane())
}

func (s *server) router(version string) http.Handler {
	router := chi.NewMux()
	router.Use(withStatus)
	noCall := httpserver.NoMethod(func(r *http.Request, method string) bool {
		return router.Match(chi.NewRouteContext(), method, r.URL.Path)
	}, func(w http.ResponseWriter, r *http.Request) {
		problem.Write(w, problem.RequestID(r.Context()), problem.Errorf(problem.NotFound, "see "+DocumentPath+" for the calls", "there is no such path"))
	})
	router.NotFound(noCall)
	router.MethodNotAllowed(noCall)
	s.api = humachi.New(router, apiConfig(version))
	for _, c := range calls() {
		c.register(s)
	}
	doc := sync.OnceValues(func() ([]byte, error) { return document(s.api) })
	router.Get(DocumentPath, func(w http.ResponseWriter, r *http.Request) {
		text, err := doc()
		if err != nil {
			problem.Write(w, problem.RequestID(r.Context()), err)
			return
		}
		w.Header().Set("Content-Type", "application/openapi+json")
		_, _ = w.Write(text) // the caller is gone if this fails
	})
	return router
}

func apiConfig(version string) huma.Config {
	cfg := huma.DefaultConfig("PipeOps operator API", version)
	// No page that loads scripts from elsewhere, no $schema in answers.
	cfg.OpenAPIPath, cfg.DocsPath, cfg.SchemasPath, cfg.CreateHooks = "", "", "", nil
	cfg.RejectUnknownQueryParameters = true
	cfg.Components.Schemas = huma.NewMapRegistry("#/components/schemas/", schemaName)
	format := huma.Format{Marshal: huma.DefaultJSONFormat.Marshal, Unmarshal: Decode}
	cfg.Formats = map[string]huma.Format{"application/json": format, "json": format}
	cfg.Info.Description = "What operators can do with a control plane. " +
		"Errors are problem details (RFC 9457) with a stable code, the field at fault and a fix. " +
		"Every change takes dryRun and Idempotency-Key, and is in the operators' audit log, as is every refusal. " +
		"x-role is the least role that may call: viewer, operator or admin."
	cfg.Info.License = &huma.License{Name: "MIT", Identifier: "MIT"}
	cfg.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"operatorCertificate": {Type: "mutualTLS", Description: "Client certificate of the control plane's CA with the URI spiffe://TRUST_DOMAIN/operator/NAME."},
	}
	cfg.Security = []map[string][]string{{"operatorCertificate": {}}}
	return cfg
}

// schemaPrefixes tell types of the same name apart, by their packages.
var schemaPrefixes = map[string]string{"store": "Stored", "credentials": "Runner"}

// schemaName returns the name of a type in the document.
func schemaName(t reflect.Type, hint string) string {
	name := huma.DefaultSchemaNamer(t, hint)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return schemaPrefixes[path.Base(t.PkgPath())] + name
}

// Decode decodes a body strictly: a field in the wrong case, or given twice, could pass the schema
// with one value and arrive with another.
func Decode(text []byte, v any) error {
	if !utf8.Valid(text) {
		return errors.New("the text is not UTF-8")
	}
	if err := decode.LimitsFor(maxBody).CheckJSON(text); err != nil {
		return err
	}
	strict, err := kjson.UnmarshalStrict(text, v)
	if err != nil {
		return fmt.Errorf("not JSON as the call takes it: %w", err)
	}
	return errors.Join(strict...)
}

// output is an answer.
type output[O any] struct{ Body O }

// register implements anyCall.
func (c *Call[I, O]) register(s *server) {
	var in I
	huma.Register(s.api, s.operation(&c.Description, inputOf(&in).body != nil), func(ctx context.Context, in *I) (*output[O], error) {
		out := &output[O]{}
		err := s.carryOut(ctx, &c.Description, in, &out.Body, func(ctx context.Context, a *administration.Admin) (err error) {
			out.Body, err = c.run(ctx, a, in)
			return err
		})
		if err != nil {
			return nil, err
		}
		return out, nil
	})
}

func (s *server) operation(d *Description, body bool) huma.Operation {
	op := huma.Operation{
		OperationID: d.ID, Method: d.Method, Path: d.Path, Summary: d.Summary, MaxBodyBytes: maxBody, BodyReadTimeout: bodyTimeout,
		Errors: []int{
			http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusConflict, http.StatusUnprocessableEntity,
			http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
		},
		Extensions:  map[string]any{"x-role": d.Role},
		Middlewares: huma.Middlewares{s.admit(d), humaproblem.Plain},
	}
	if body {
		op.Errors = append(op.Errors, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
	} else {
		op.Middlewares = append(op.Middlewares, bodyless)
	}
	return op
}

// bodyless refuses a body, which would go unread.
func bodyless(ctx huma.Context, next func(huma.Context)) {
	r, w := humachi.Unwrap(ctx)
	if err := problem.NoBody(w, r); err != nil {
		refuse(ctx, err)
		return
	}
	next(ctx)
}

// carryOut carries out a call that admit has admitted.
func (s *server) carryOut(ctx context.Context, d *Description, in, out any, run func(context.Context, *administration.Admin) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	at := visitOf(ctx)
	err := s.once(ctx, d, at.caller.Operator.Name, in, out, func() error { return s.perform(ctx, d, in, at.record, run) })
	if err != nil {
		at.err = s.wireError(ctx, err)
		return at.err
	}
	return nil
}

// failed returns the answer to a call that an error ended which is not a refusal. Admins get the
// cause of a failure of the database: they run it.
func failed(ctx context.Context, err error) *problem.Error {
	failure, ok := errors.AsType[*store.EngineError](err)
	at, isVisit := ctx.Value(visitKey{}).(*visit)
	switch {
	case !ok:
		return problem.Unexpected()
	case isVisit && at.caller.Operator.Role == administration.RoleAdmin:
		return failure.Explained()
	}
	return failure.Problem()
}

// wireError returns what may be sent about an error, and logs it if that is not everything.
func (s *server) wireError(ctx context.Context, err error) *problem.Error {
	found := refusal(err)
	if found == nil {
		found = failed(ctx, err)
		if !left(ctx, found) {
			s.log.Error().Err(err).Str("requestId", problem.RequestID(ctx)).Msg("operator API: call failed")
		}
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			found = problem.Errorf(problem.Timeout, "try again", "the call took too long")
		}
	}
	found.RequestID = problem.RequestID(ctx)
	return found
}
