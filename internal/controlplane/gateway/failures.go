package gateway

import (
	_ "embed"
	"html/template"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

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
	noRoute = failure{http.StatusNotFound, gatewaywire.NoRoute, "Nothing is served here",
		"The application is not published at this path.", "check the address", 0}
	starting = failure{http.StatusServiceUnavailable, gatewaywire.Starting, "The application cannot be reached",
		"A part of the way to it is starting.", "try again in a moment", 5 * time.Second}
	offline = failure{http.StatusServiceUnavailable, "offline", "The application cannot be reached",
		"Its cluster is not connected at present.", "try again in a minute", 30 * time.Second}
	notReady = failure{http.StatusServiceUnavailable, gatewaywire.NotReady, "The application is not ready",
		"It is starting, or has stopped.", "try again in a moment", 10 * time.Second}
	busy = failure{http.StatusServiceUnavailable, gatewaywire.Busy, "Too many requests",
		"There are too many requests for this application at present.", "try again in a moment", 5 * time.Second}
	tooMany = failure{http.StatusTooManyRequests, "too-many", "Too many requests",
		"There are too many requests from your address at present.", "try again in a moment", 5 * time.Second}
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
	gatewaywire.Starting: starting, gatewaywire.NoRoute: noRoute, gatewaywire.NotReady: notReady, gatewaywire.Unreachable: badGateway,
	gatewaywire.TimedOut: timedOut, gatewaywire.Busy: busy,
}

//go:embed page.html
var pageText string

var page = sync.OnceValue(func() *template.Template { return template.Must(template.New("page").Parse(pageText)) })

// fail answers with a page for browsers, and problem details for all others.
func (g *Gateway) fail(w http.ResponseWriter, r *http.Request, f failure) {
	id := ""
	if v := visitOf(r.Context()); v != nil {
		v.failed, id = f.word, v.id
	}
	if f.word == clientGone.word {
		if rec, ok := w.(*recorder); ok {
			rec.status = f.status
		}
		return
	}
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	if f.status == http.StatusRequestTimeout && r.ProtoMajor == 1 {
		h.Set("Connection", "close")
	}
	if f.retry > 0 {
		h.Set("Retry-After", strconv.Itoa(int(f.retry.Seconds())))
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

var codes = map[int]problem.Code{
	http.StatusMethodNotAllowed: problem.NotAllowed, http.StatusNotFound: problem.NotFound, http.StatusServiceUnavailable: problem.Unavailable,
	http.StatusTooManyRequests: problem.TooManyRequests, http.StatusGatewayTimeout: problem.Timeout,
	http.StatusBadGateway: problem.Unavailable, http.StatusRequestTimeout: problem.RequestTimeout,
}

// wantsPage reports whether a client asks for HTML, as browsers do.
func wantsPage(r *http.Request) bool { return strings.Contains(r.Header.Get("Accept"), "text/html") }
