package server

import (
	"net/http"
	"reflect"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/problem/humaproblem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// OpenAPIPath is the path of the OpenAPI document of the control plane's calls for Runners.
const OpenAPIPath = "/v1/openapi.json"

// eventBody describes an event in the document; Event.Encode writes events.
type eventBody struct {
	SpecVersion     string         `json:"specversion" enum:"1.0"`
	ID              string         `json:"id" doc:"The same event sent twice has the same ID."`
	Source          string         `json:"source" doc:"Names the control plane's installation and the agent."`
	Type            string         `json:"type" example:"io.pipeops.app.failed"`
	Subject         string         `json:"subject,omitempty" doc:"AGENT_ID, or AGENT_ID/NAMESPACE/APP."`
	Time            time.Time      `json:"time"`
	AgentID         string         `json:"agentid"`
	Sequence        string         `json:"sequence" doc:"Orders the agent's events, as a number and as text." pattern:"^[0-9]{20}$"`
	Previous        string         `json:"previous" doc:"The sequence of the agent's event before, or zeros." pattern:"^[0-9]{20}$"`
	DataContentType string         `json:"datacontenttype" enum:"application/json"`
	Data            map[string]any `json:"data" doc:"An Agent for agent.*, an AppEvent for app.*, a RouteEvent for route.*, an AlertEvent for alert.*."`
}

// timelineDocument is the body of a timeline in the document.
type timelineDocument struct {
	Events []eventBody `json:"events"`
	More   bool        `json:"more" doc:"There are further events: ask with before, or in order oldest with after, and the last one's sequence."`
}

// OpenAPI returns the document of the calls for Runners: OpenAPI 3.1 as JSON.
func OpenAPI(version string) ([]byte, error) {
	schemas := huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer)
	doc := &huma.OpenAPI{
		OpenAPI: "3.1.0", Info: &huma.Info{
			Title: "PipeOps control plane: Runners' API", Version: version,
			Description: "Calls of the control plane's HTTPS port, with the Runner's certificate. All but one take no body. " +
				"Any path may answer 404, and 307 if it is not written plainly.",
		},
		Components: &huma.Components{Schemas: schemas, SecuritySchemes: map[string]*huma.SecurityScheme{
			"certificate": {Type: "mutualTLS", Description: "The Runner's certificate."},
		}},
	}
	schemas.Schema(reflect.TypeFor[announce.AppEvent](), true, "") // events contain these in their data
	schemas.Schema(reflect.TypeFor[announce.RouteEvent](), true, "")
	schemas.Schema(reflect.TypeFor[announce.AlertEvent](), true, "")
	doc.AddOperation(documented(schemas, "list-agents", announce.SnapshotPath, "List the agents that the Runner is granted", reflect.TypeFor[announce.Snapshot]()))
	one := documented(schemas, "get-agent", announce.AgentPath, "Get an agent by its name or ID", reflect.TypeFor[announce.Agent](), http.StatusNotFound)
	one.Parameters = []*huma.Param{{Name: "agent", In: "path", Required: true, Description: "The agent's name or ID. An ID wins over the same name.", Schema: text()}}
	one.Description = "404 does not tell apart an agent that does not exist and one that the Runner is not granted."
	doc.AddOperation(one)
	timeline := documented(schemas, "get-timeline", announce.TimelinePath, "What happened to an agent and its Apps", reflect.TypeFor[timelineDocument](),
		http.StatusNotFound, http.StatusUnprocessableEntity)
	timeline.Parameters = append([]*huma.Param{{Name: "id", In: "path", Required: true, Description: "The agent's ID.", Schema: text()}}, timelineParameters()...)
	doc.AddOperation(timeline)
	for _, op := range sourceWebhookCalls(schemas) {
		doc.AddOperation(op)
	}
	doc.AddOperation(certificate(schemas))
	doc.AddOperation(exchangeCall(schemas))
	doc.AddOperation(versionCall(schemas))
	return humaproblem.Document(doc, humaproblem.ControlPlane())
}

// sourceWebhookCalls document the calls about the webhook of a source.
func sourceWebhookCalls(schemas huma.Registry) (calls []*huma.Operation) {
	for _, c := range []struct{ method, id, summary, description string }{
		{http.MethodGet, "get-source-webhook", "Get the webhook that this Runner has for a Git source",
			"With the last push event. 404 if there is no webhook."},
		{http.MethodPut, "set-source-webhook", "Make the webhook of a Git source, or give it a new secret",
			"The answer has an address for the Git server's settings, and a secret that no other answer has. A push makes the agent look at the source at once, " +
				"if this Runner put the source, or the policy lets it sync the source. At most 1 000 webhooks for each Runner: then 409."},
		{http.MethodDelete, "delete-source-webhook", "Delete the webhook of a Git source", "The source stays, and is looked at by its interval."},
	} {
		op := documented(schemas, c.id, announce.SourceWebhookPath, c.summary, reflect.TypeFor[announce.SourceWebhook](), http.StatusNotFound)
		if c.method == http.MethodPut {
			op = documented(schemas, c.id, announce.SourceWebhookPath, c.summary, reflect.TypeFor[announce.SourceWebhook](),
				http.StatusNotFound, http.StatusConflict, http.StatusUnprocessableEntity)
		}
		if c.method == http.MethodDelete {
			op.Responses["200"].Content["application/json"].Schema = &huma.Schema{Type: huma.TypeObject}
		}
		op.Method, op.Description = c.method, c.description
		for _, name := range []string{"agent", "namespace", "source"} {
			op.Parameters = append(op.Parameters, &huma.Param{Name: name, In: "path", Required: true, Description: pathParameters[name], Schema: text()})
		}
		calls = append(calls, op)
	}
	return calls
}

var pathParameters = map[string]string{"agent": "The agent's name or ID.", "namespace": "The source's namespace.", "source": "The source's name."}

// certificateBody describes login.Answer in the document.
type certificateBody struct {
	Certificate string `json:"certificate" doc:"PEM: the certificate, then what leads to former CAs."`
	CA          string `json:"ca" doc:"PEM: the CAs to trust now."`
}

// certificate documents the call that package login serves.
func certificate(schemas huma.Registry) *huma.Operation {
	op := documented(schemas, "renew-certificate", "/v1/runner/certificate", "Renew the Runner's certificate", reflect.TypeFor[certificateBody]())
	op.Method = http.MethodPost
	op.Description = "Send the old certificate in TLS, and no body. The answer has a certificate with the same key, name, grant and serial number, " +
		"valid from now on for as long as the operator chose (24 hours by default). " +
		"Call it when two thirds of the certificate's life are over, or when " + issuerHeader + " in an answer names another CA than the one that issued the certificate. " +
		"Before half of its life is over the answer is the same certificate. A certificate that has ended is renewed for 7 days more, or for seven of its lives if that is less. " +
		"A Runner that was revoked gets none. Beyond 600 certificates an hour the answer is 429."
	return op
}

// exchangeBody describes login.ExchangeRequest in the document, and exchangedBody login.Exchanged.
type exchangeBody struct {
	Runner  string `json:"runner"`
	Token   string `json:"token" doc:"The ID token, as it was issued: a secret."`
	Request string `json:"request" doc:"PEM: a certificate request (PKCS #10) for an ECDSA key, P-256 or P-384. Names in it are ignored."`
}

type exchangedBody struct {
	Certificate  string `json:"certificate" doc:"PEM: the certificate, then what leads to former CAs."`
	CA           string `json:"ca" doc:"PEM: the CAs to trust now."`
	Edge         string `json:"edge" doc:"HOST:PORT at which all agents are reached."`
	AgentsDomain string `json:"agentsDomain" doc:"Domain of the agents' names in TLS."`
	TrustDomain  string `json:"trustDomain" doc:"Domain of the URIs in certificates."`
}

// exchangeCall documents the other call that package login serves.
func exchangeCall(schemas huma.Registry) *huma.Operation {
	op := documented(schemas, "exchange-id-token", "/v1/runner/exchange", "Exchange an ID token for a certificate", reflect.TypeFor[exchangedBody](),
		http.StatusUnprocessableEntity, http.StatusRequestEntityTooLarge)
	op.Method, op.Security = http.MethodPost, []map[string][]string{{}}
	op.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
		"application/json": {Schema: schemas.Schema(reflect.TypeFor[exchangeBody](), true, "")},
	}}
	op.Description = "For a Runner that an operator has bound to ID tokens of OpenID Connect. The certificate is valid for 15 minutes and is not renewed: exchange a token again. " +
		"A token is good for one key. While the token is valid, its holder can send it again with the same key. " +
		"The answer is 503 if the issuer cannot be asked for its keys, and 429 beyond 600 certificates of a Runner an hour."
	return op
}

// versionCall documents the call that needs no certificate.
func versionCall(schemas huma.Registry) *huma.Operation {
	op := documented(schemas, "get-version", announce.VersionPath, "Get the control plane's version", reflect.TypeFor[announce.ServerVersion]())
	op.Security = []map[string][]string{{}}
	delete(op.Responses["200"].Headers, issuerHeader)
	for _, status := range []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusInternalServerError} {
		delete(op.Responses, strconv.Itoa(status))
	}
	return op
}

// issuerHeader is login.HeaderIssuer.
const issuerHeader = "Pipeops-Ca-Key-Id"

func documented(schemas huma.Registry, id, path, summary string, answer reflect.Type, failures ...int) *huma.Operation {
	op := &huma.Operation{
		OperationID: id, Method: http.MethodGet, Path: path, Summary: summary, Security: []map[string][]string{{"certificate": {}}},
		Responses: map[string]*huma.Response{"200": {
			Description: "OK",
			Headers: map[string]*huma.Header{
				problem.RequestIDHeader: requestID(),
				issuerHeader:            {Description: "Key ID, in hexadecimal, of the CA that issues certificates now.", Schema: text()},
			},
			Content: map[string]*huma.MediaType{"application/json": {Schema: schemas.Schema(answer, true, "")}},
		}},
	}
	op.Responses["307"] = &huma.Response{
		Description: "The path is not written plainly: it has //, /./ or /../.",
		Headers: map[string]*huma.Header{
			problem.RequestIDHeader: requestID(),
			"Location":              {Description: "The plain path, with the query.", Schema: text()},
		},
	}
	for _, status := range append(failures, http.StatusBadRequest, http.StatusRequestTimeout, http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable) {
		response := &huma.Response{
			Description: http.StatusText(status), Headers: map[string]*huma.Header{problem.RequestIDHeader: requestID()},
			Content: map[string]*huma.MediaType{problem.ContentType: {Schema: schemas.Schema(reflect.TypeFor[problem.Error](), true, "")}},
		}
		if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
			response.Headers["Retry-After"] = &huma.Header{
				Description: "Seconds after which the same call is worth sending again.", Schema: &huma.Schema{Type: huma.TypeInteger},
			}
		}
		op.Responses[strconv.Itoa(status)] = response
	}
	return op
}

func requestID() *huma.Header {
	return &huma.Header{Description: "The call, for finding it in the control plane's log.", Schema: text()}
}

func text() *huma.Schema { return &huma.Schema{Type: huma.TypeString} }

// timelineParameters returns the parameters that parseTimelineQuery reads.
func timelineParameters() []*huma.Param {
	one, most := 1.0, float64(announce.MaxTimelineLimit)
	number := &huma.Schema{Type: huma.TypeInteger, Format: "int64", Minimum: &one}
	param := func(name, description string, schema *huma.Schema) *huma.Param {
		return &huma.Param{Name: name, In: "query", Description: description, Schema: schema}
	}
	types := announce.MaxTimelineTypes
	return []*huma.Param{
		param("namespace", "Events of Apps in this namespace.", text()),
		param("app", "Events of this App of the namespace.", text()),
		param("type", "Events of these types.", &huma.Schema{Type: huma.TypeArray, MaxItems: &types, Items: &huma.Schema{Type: huma.TypeString, Pattern: announce.TypeParameter.String()}}),
		param("since", "Events from this time on; an App's have the agent's time.", &huma.Schema{Type: huma.TypeString, Format: "date-time"}),
		param("before", "Events with a smaller sequence.", number),
		param("after", "Events with a larger sequence.", number),
		param("order", "Which come first.", &huma.Schema{Type: huma.TypeString, Enum: []any{"newest", "oldest"}, Default: "newest"}),
		param("limit", "How many. An answer has no more than 4 MiB of events.", &huma.Schema{Type: huma.TypeInteger, Minimum: &one, Maximum: &most, Default: announce.DefaultTimelineLimit}),
	}
}

// OpenAPIHandler serves the document without authentication.
func OpenAPIHandler(version string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		document, err := OpenAPI(version)
		if err != nil {
			problem.Write(w, problem.RequestID(r.Context()), err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(document) // the client is gone if this fails
	})
}
