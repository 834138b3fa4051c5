package gateway

import (
	"cmp"
	_ "embed"
	"html/template"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	grpc "google.golang.org/grpc/codes"

	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// failure is an answer that the gateway gives by itself.
type failure struct {
	status int
	word   string // for logs and metrics
	title  string
	text   string
	fix    string
	retry  time.Duration
}

var (
	unknownHost = failure{http.StatusNotFound, "unknown-host", "Nothing is served here",
		"No application is published at this address.",
		"check the address; its owner finds the reason with `pipeops-runner status AGENT APP`", 0}
	noTunnels = failure{http.StatusMethodNotAllowed, "connect", "There is no proxy here",
		"The method CONNECT is not supported.", "use another method", 0}
	// lastHop and noTrace answer requests that are not to be passed on (RFC 9110, section 7.6.2).
	lastHop = failure{http.StatusNoContent, "max-forwards", "", "", "", 0}
	noTrace = failure{http.StatusMethodNotAllowed, "max-forwards", "The request ends here",
		"The gateway does not answer TRACE by itself.", "send a larger Max-Forwards, or none", 0}
	badTarget = failure{http.StatusBadRequest, "bad-target", "The request cannot be read",
		"Its path or query has a space or a control character, or is not a path.", "escape such characters, a space as %20", 0}
	badHost = failure{http.StatusBadRequest, "bad-host", "The request cannot be read",
		"The port in its host is not a number.", "send the host as the URL has it", 0}
	// misdirected is the answer of RFC 9110, section 15.5.20.
	misdirected = failure{http.StatusMisdirectedRequest, "misdirected", "The request came by the wrong connection",
		"The application ends TLS itself: only a connection to its own name reaches it.", "open a new connection, whose TLS names this host", 0}
	badBody = failure{http.StatusBadRequest, "bad-body", "The request cannot be read",
		"Its body is malformed, or ended before it was complete.", "send the body as HTTP says (RFC 9112, sections 7 and 8)", 0}
	noRoute = failure{http.StatusNotFound, gatewaywire.NoRoute, "Nothing is served here",
		"The application is not published at this path.", "check the address", 0}
	ambiguous = failure{http.StatusBadRequest, gatewaywire.Ambiguous, "The request cannot be read",
		"Its path can be read in several ways, and the application is not published at each of them.", "send the path without .., double or encoded slashes, backslashes and semicolons", 0}
	starting = failure{http.StatusServiceUnavailable, gatewaywire.Starting, "The application cannot be reached",
		"A component on the path to it is starting.", "try again in a moment", 5 * time.Second}
	offline = failure{http.StatusServiceUnavailable, "offline", "The application cannot be reached",
		"Its cluster is not connected at present.", "try again in a minute", 30 * time.Second}
	notReady = failure{http.StatusServiceUnavailable, gatewaywire.NotReady, "The application is not ready",
		"It is starting, or has stopped.", "try again in a moment", 10 * time.Second}
	noBackend = failure{http.StatusInternalServerError, gatewaywire.NoBackend, "The application cannot be reached",
		"Its route names no Service that exists and may be reached.", "its owner finds the reason with `pipeops-runner routes AGENT`", 0}
	busy = failure{http.StatusServiceUnavailable, gatewaywire.Busy, "Too many requests",
		"There are too many requests for this application at present.", "try again in a moment", 5 * time.Second}
	tooMany = failure{http.StatusTooManyRequests, gatewaywire.TooMany, "Too many requests",
		"There are too many requests from your address at present.", "try again in a moment", 5 * time.Second}
	denied = failure{http.StatusForbidden, gatewaywire.Denied, "You are not let in",
		"The application does not let in your address.", "ask the application's owner to add your address to ingress.visitors.allowFrom", 0}
	unauthorized = failure{http.StatusUnauthorized, gatewaywire.Unauthorized, "Sign in",
		"The application wants a user's name and password.", "send both by HTTP basic authentication", 0}
	signIn = failure{http.StatusUnauthorized, gatewaywire.SignIn, "Sign in",
		"The application wants its visitors to sign in.", "open its address in a browser, or send a service token in Pipeops-Service-Token", 0}
	tokenWanted = failure{http.StatusUnauthorized, gatewaywire.TokenWanted, "You are not let in",
		"The application wants a service token.", "send one that its owner gave you in Pipeops-Service-Token", 0}
	signInFailed = failure{http.StatusUnauthorized, gatewaywire.SignInFailed, "You are not signed in",
		"The sign-in was not completed: it took too long, began in another browser, or was refused.", "open the application's address and sign in again", 0}
	notAdmitted = failure{http.StatusForbidden, gatewaywire.NotAdmitted, "You are not let in",
		"The application does not let in this account.", "sign in with another account, or ask the application's owner to add yours to ingress.visitors.signIn", 0}
	providerAway = failure{http.StatusServiceUnavailable, gatewaywire.ProviderAway, "You cannot sign in now",
		"The identity provider of the application does not answer as it should.", "try again in a moment", 10 * time.Second}
	tooLarge = failure{http.StatusRequestEntityTooLarge, gatewaywire.TooLarge, "The request is too large",
		"The application does not take a body of this size.", "send less at a time", 0}
	slowBody = failure{http.StatusRequestTimeout, "slow-body", "The request did not arrive",
		"The rest of the request's body did not arrive in time.", "try again; check your connection", 0}
	timedOut = failure{http.StatusGatewayTimeout, gatewaywire.TimedOut, "The application does not answer",
		"It took too long to answer.", "try again later", 0}
	badGateway = failure{http.StatusBadGateway, gatewaywire.Unreachable, "The application cannot be reached",
		"It closed the connection, or gave no valid answer.", "try again in a moment", 0}
	notReached = failure{http.StatusServiceUnavailable, "not-reached", "The application cannot be reached",
		"The address of its cluster does not answer at present.", "try again in a minute", 30 * time.Second}
	// clientGone is for the log alone.
	clientGone = failure{499, "client-gone", "", "", "", 0}
)

// agentFailures are the answers to what an agent says by itself.
var agentFailures = map[string]failure{
	gatewaywire.Starting: starting, gatewaywire.NoRoute: noRoute, gatewaywire.Ambiguous: ambiguous, gatewaywire.NotReady: notReady, gatewaywire.Unreachable: badGateway,
	gatewaywire.NoBackend: noBackend,
	gatewaywire.TimedOut:  timedOut, gatewaywire.Busy: busy,
	gatewaywire.Denied: denied, gatewaywire.Unauthorized: unauthorized, gatewaywire.TooMany: tooMany, gatewaywire.TooLarge: tooLarge,
	gatewaywire.SignIn: signIn, gatewaywire.TokenWanted: tokenWanted, gatewaywire.SignInFailed: signInFailed, gatewaywire.NotAdmitted: notAdmitted, gatewaywire.ProviderAway: providerAway,
}

//go:embed page.html
var pageText string

var page = sync.OnceValue(func() *template.Template { return template.Must(template.New("page").Parse(pageText)) })

// fail answers with a page for browsers, and problem details for all others.
func (g *Gateway) fail(w http.ResponseWriter, r *http.Request, f failure) {
	id := ""
	if v := visitOf(r.Context()); v != nil {
		v.failed, id = f.word, v.id
		g.sign(w.Header(), v)
	}
	if f.word == clientGone.word {
		if rec, ok := w.(*recorder); ok {
			rec.status = f.status
		}
		return
	}
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	switch {
	case slices.Contains(unread, f.status) && r.ProtoMajor == 1:
		h.Set("Connection", "close")
	case f == signIn || f == signInFailed: // RFC 9110, section 15.5.2, wants one; no browser asks for a password by this one
		h.Set("WWW-Authenticate", `PipeOps-Sign-In realm="`+quotable(normal(r.Host))+`"`)
	case f.status == http.StatusUnauthorized: // RFC 7617, section 2
		h.Set("WWW-Authenticate", `Basic realm="`+quotable(normal(r.Host))+`", charset="UTF-8"`)
	case f.status == http.StatusMethodNotAllowed: // RFC 9110, section 15.5.6
		h.Set("Allow", allowed)
	case f == lastHop:
		h.Set("Allow", allowed)
		w.WriteHeader(f.status)
		return
	}
	if f.retry > 0 {
		h.Set("Retry-After", strconv.Itoa(int(f.retry.Seconds())))
	}
	if gatewaywire.IsGRPC(r.Header) {
		failGRPC(w, f)
		return
	}
	if !wantsPage(r) {
		problem.Write(w, id, problem.New(f.status, codes[f.status], f.fix, "%s", f.text))
		return
	}
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(f.status)
	if r.Method != http.MethodHead {
		_ = page().Execute(w, map[string]any{"Title": f.title, "Text": f.text, "Status": f.status, "ID": id})
	}
}

// unread are the statuses of failures that may leave a part of the request behind.
var unread = []int{http.StatusRequestTimeout, http.StatusBadRequest, http.StatusRequestEntityTooLarge}

// allowed are the methods of a resource of which the gateway knows nothing.
const allowed = "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT"

// failGRPC answers a gRPC call, in trailers alone:
// https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md
func failGRPC(w http.ResponseWriter, f failure) {
	h := w.Header()
	h.Set("Content-Type", "application/grpc")
	h.Set("Grpc-Status", strconv.FormatUint(uint64(cmp.Or(grpcCodes[f.status], grpc.Unavailable)), 10))
	h.Set("Grpc-Message", f.text+" "+f.fix) // printable ASCII without %
	w.WriteHeader(http.StatusOK)
}

// grpcCodes are those for which there is no Unavailable:
// https://github.com/grpc/grpc/blob/master/doc/http-grpc-status-mapping.md
var grpcCodes = map[int]grpc.Code{
	http.StatusBadRequest: grpc.Internal, http.StatusNotFound: grpc.Unimplemented, http.StatusMethodNotAllowed: grpc.Unknown,
	http.StatusRequestTimeout: grpc.Unknown, http.StatusUnauthorized: grpc.Unauthenticated, http.StatusForbidden: grpc.PermissionDenied,
	http.StatusRequestEntityTooLarge: grpc.Unknown, http.StatusInternalServerError: grpc.Unknown,
}

var codes = map[int]problem.Code{
	http.StatusMethodNotAllowed: problem.NotAllowed, http.StatusNotFound: problem.NotFound, http.StatusServiceUnavailable: problem.Unavailable,
	http.StatusTooManyRequests: problem.TooManyRequests, http.StatusGatewayTimeout: problem.Timeout,
	http.StatusBadGateway: problem.Unavailable, http.StatusRequestTimeout: problem.RequestTimeout, http.StatusBadRequest: problem.BadRequest,
	http.StatusUnauthorized: problem.Unauthorized, http.StatusForbidden: problem.Forbidden, http.StatusRequestEntityTooLarge: problem.TooLarge,
	http.StatusInternalServerError: problem.Internal,
}

// wantsPage reports whether a client asks for HTML, as browsers do.
func wantsPage(r *http.Request) bool { return strings.Contains(r.Header.Get("Accept"), "text/html") }
