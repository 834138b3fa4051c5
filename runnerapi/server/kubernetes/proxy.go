package kubernetes

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httputil"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/httpserver"
	"github.com/pipeops/pipeops-vm-agent/internal/limit"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/audit"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/request"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/transport"
)

const (
	// maxKubernetesBody is the API server's own limit for a body.
	maxKubernetesBody = 3 << 20
	// kubernetesAnswer is how long the API server may take to begin an answer that is not a stream.
	// The API server's own limit is a minute.
	kubernetesAnswer = 75 * time.Second
	// scopeTimeout is how long the API server may take to list the resources of a group.
	scopeTimeout = 10 * time.Second
)

// Methods lists the methods of the Kubernetes API.
var Methods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// passedHeaders lists the caller's headers that are forwarded. It contains none that could name the
// caller, now or in a later version of the API server.
var passedHeaders = map[string]bool{
	"Accept": true, "Accept-Encoding": true, "Accept-Language": true, "Cache-Control": true,
	"Content-Type": true, "Content-Encoding": true, "Content-Language": true,
	"If-Match": true, "If-None-Match": true, "If-Modified-Since": true, "If-Unmodified-Since": true, "Range": true,
	"User-Agent": true, "Kubectl-Command": true, "Kubectl-Session": true,
	"Connection": true, "Upgrade": true, // ReverseProxy keeps only those of an upgrade
	"Sec-Websocket-Key": true, "Sec-Websocket-Version": true, "Sec-Websocket-Protocol": true, "Sec-Websocket-Extensions": true,
	"X-Stream-Protocol-Version": true,
}

// bearerProtocol is the prefix of a bearer token among a WebSocket's protocols, where the API
// server accepts it from browsers.
const bearerProtocol = "base64url.bearer.authorization.k8s.io." //nolint:gosec // what is before the token

// API forwards requests to the cluster's own API.
type API struct {
	Cluster backend.KubernetesAPI
	Policy  backend.Policy
	Audit   *audit.Log
	Bodies  *request.Bodies
	Streams *limit.Shares
	Log     zerolog.Logger
}

// Intend adds the request to an intent, with the identity that the policy grants it.
func (a *API) Intend(w http.ResponseWriter, r *http.Request, i runnerapi.Intent) (runnerapi.Intent, error) {
	k, err := Read(r)
	if err != nil {
		return runnerapi.Intent{}, err
	}
	if err = readDryRun(&k, w, r); err != nil {
		return runnerapi.Intent{}, err
	}
	audit.NoteKubernetes(r.Context(), &k)
	if a.Cluster == nil || a.Policy == nil {
		return runnerapi.Intent{}, runnerapi.PolicyDenied("report this", "this agent passes nothing on to the Kubernetes API")
	}
	if k.Impersonate, err = impersonates(r.Header); err != nil {
		return runnerapi.Intent{}, err
	}
	if err = guardAgentNamespace(&k, a.Cluster.OwnNamespace(), r.URL.Query()); err != nil {
		return runnerapi.Intent{}, err
	}
	i.Namespace, i.Kubernetes = k.Namespace, &k
	if k.Grant, err = a.Policy.KubernetesGrant(i); err != nil {
		return runnerapi.Intent{}, err
	}
	return i, guardService(&k, w, r)
}

// ServeHTTP forwards a request to the API server.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	intent, _ := request.Intent(r.Context())
	k := intent.Kubernetes
	if k == nil { // the guard did not see the request
		WriteError(w, r, a.Log, problem.Errorf(problem.Internal, "report this", "the request was not asked about"))
		return
	}
	if k.AsksOfItself() {
		a.review(w, r, intent)
		return
	}
	shown, err := a.hideNamespaces(r, k)
	if err != nil {
		WriteError(w, r, a.Log, a.passing(r.Context(), err))
		return
	}
	a.forward(w, shown, intent.Runner, k, nil)
}

// forward sends a request to the API server. If alter is not nil, it modifies the answer.
func (a *API) forward(w http.ResponseWriter, r *http.Request, runner string,
	k *runnerapi.KubernetesRequest, alter func(*http.Response) error,
) {
	target, via, err := a.Cluster.APIServer()
	if err != nil {
		WriteError(w, r, a.Log, err)
		return
	}
	if k.Long() || k.Subresource == "log" { // the reader of either may pause
		leave, ok := a.Streams.EnterMost(runner, k.Grant.Streams)
		if !ok {
			WriteError(w, r, a.Log, request.Busy("too many of this Runner's watches, logs and connections are open"))
			return
		}
		defer leave()
	}
	if k.Upgrade != "" {
		defer transport.EnterUpgraded(r.Context())()
	}
	done, err := a.Bodies.Hold(w, r, runner, maxKubernetesBody)
	if err != nil {
		WriteError(w, r, a.Log, err)
		return
	}
	defer done()
	a.pass(w, r, k, upstream{target, via, alter})
}

// upstream is how a request reaches the API server, and how its answer returns.
type upstream struct {
	target    *url.URL
	transport http.RoundTripper
	alter     func(*http.Response) error
}

// errNoAnswer ends a request that the API server does not begin to answer.
var errNoAnswer = problem.Errorf(problem.Timeout, "try again; if it stays so, see whether the cluster's API server is healthy",
	"the API server did not begin to answer within %s", kubernetesAnswer)

// pass runs an httputil.ReverseProxy, which supports upgrades to any protocol. If an answer breaks
// off, it panics with http.ErrAbortHandler, so that no client takes the answer for complete.
func (a *API) pass(w http.ResponseWriter, r *http.Request, k *runnerapi.KubernetesRequest, to upstream) {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	defer transport.EndWith(ctx, cancel)()
	began := func() {}
	if k.Long() {
		var stop context.CancelFunc
		ctx, stop = transport.UntilDrain(ctx)
		defer stop()
	} else {
		timer := time.AfterFunc(kubernetesAnswer, func() { cancel(errNoAnswer) })
		defer timer.Stop()
		began = func() { timer.Stop() }
	}
	held, finish := holdReader(ctx, w)
	defer finish()
	proxy := &httputil.ReverseProxy{
		Transport: to.transport, FlushInterval: -1, ErrorLog: httpserver.ErrorLog(a.Log, "runner API: "),
		Rewrite: func(p *httputil.ProxyRequest) { p.Out = impersonated(p.Out, k, to.target) },
		ModifyResponse: func(resp *http.Response) error {
			began()
			if err := a.answered(r, k, resp); err != nil {
				return err
			}
			sayWhy(ctx, k, resp)
			if to.alter == nil {
				return nil
			}
			return to.alter(resp)
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) { WriteError(w, r, a.Log, a.passing(ctx, err)) },
	}
	proxy.ServeHTTP(held, r.WithContext(ctx))
}

// impersonated returns a request that the agent makes to the API server as another identity.
func impersonated(out *http.Request, k *runnerapi.KubernetesRequest, target *url.URL) *http.Request {
	out.Host = ""
	out.URL.Scheme, out.URL.Host, out.URL.User = target.Scheme, target.Host, nil
	out.URL.Path, out.URL.RawPath = strings.TrimSuffix(target.Path, "/")+k.Path, ""
	out.Header = PassedHeaders(out.Header)
	out.Header.Set(impersonateUser, k.Grant.As.User)
	for _, group := range k.Grant.As.Groups {
		out.Header.Add(impersonateGroup, group)
	}
	return out
}

// PassedHeaders returns those of a caller's headers that are forwarded.
func PassedHeaders(h http.Header) http.Header {
	passed := h.Clone()
	for name := range passed {
		if !passedHeaders[textproto.CanonicalMIMEHeaderKey(name)] {
			delete(passed, name)
		}
	}
	withoutBearer(passed)
	return passed
}

// withoutBearer removes tokens from the protocols of a WebSocket.
func withoutBearer(h http.Header) {
	const name = "Sec-Websocket-Protocol"
	var kept []string
	for _, line := range h.Values(name) {
		for p := range strings.SplitSeq(line, ",") {
			if p = strings.TrimSpace(p); p != "" && !strings.HasPrefix(p, bearerProtocol) {
				kept = append(kept, p)
			}
		}
	}
	h.Del(name)
	if len(kept) > 0 {
		h.Set(name, strings.Join(slices.Compact(kept), ", "))
	}
}

// answered checks the API server's answer before it is forwarded.
func (a *API) answered(r *http.Request, k *runnerapi.KubernetesRequest, resp *http.Response) error {
	if resp.StatusCode == http.StatusUnauthorized {
		return problem.Errorf(problem.Unavailable, "see the agent's log, and whether its ServiceAccount is there", "the API server does not take the agent's own credentials")
	}
	if resp.StatusCode == http.StatusForbidden {
		if err := mayImpersonate(k, resp); err != nil {
			return err
		}
	}
	for _, name := range []string{"Set-Cookie", "Www-Authenticate", "Alt-Svc"} {
		resp.Header.Del(name)
	}
	if k.Long() && resp.StatusCode < http.StatusBadRequest {
		a.Audit.Begin(r, resp.StatusCode, http.Header{})
	}
	return nil
}

// maxRefused is how much of a refusal is read, in bytes.
const maxRefused = 8 << 10

// ownRefusal is in the text of a Status, in JSON or protobuf, that refuses the agent and not the
// impersonated identity: "cannot impersonate resource", and since Kubernetes 1.36 also "cannot
// impersonate-on:user-info:list resource" (constrained impersonation).
const ownRefusal = `" cannot impersonate`

// mayImpersonate returns an error if a refusal is for the agent itself: no request of a Runner asks
// for impersonation.
func mayImpersonate(k *runnerapi.KubernetesRequest, resp *http.Response) error {
	if resp.ContentLength < 0 || resp.ContentLength > maxRefused {
		return nil
	}
	said, err := io.ReadAll(io.LimitReader(resp.Body, maxRefused))
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return err
	}
	if bytes.Contains(said, []byte(ownRefusal)) {
		return problem.Errorf(problem.Forbidden, "the owner of the cluster has to allow it, with these names: kubectl apply -f kubernetes-api-rights.yaml; see docs/deployer/kubernetes-api.md",
			"the API server does not let the agent ask in the name of user %q and groups %q", k.Grant.As.User, k.Grant.As.Groups)
	}
	resp.Body = io.NopCloser(bytes.NewReader(said))
	return nil
}

// errDraining ends open requests when the agent stops.
var errDraining = problem.Errorf(problem.Unavailable, "call again: another instance continues",
	"the agent is shutting down")

// passing returns the error of a request that could not be forwarded.
func (a *API) passing(ctx context.Context, err error) error {
	if _, ok := errors.AsType[*runnerapi.Error](err); ok {
		return err
	}
	if why := whyEnded(ctx); why != nil {
		return why
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	a.Log.Warn().Err(err).Msg("runner API: failed to query the API server")
	return problem.Errorf(problem.Unavailable, "try again; if it stays so, see whether the cluster's API server is healthy",
		"the agent could not reach the API server")
}
