// Package gatewaywire is what the gateway and an agent must agree on about public streams. A stream
// carries HTTP/1.1, with the public request's own host, path and header.
package gatewaywire

import (
	"net/http"
	"strings"
	"time"
)

// HeaderFailed is in an answer that is the agent's own and not the backend's. Its value is one of
// the words below. The agent removes it from what backends answer.
const HeaderFailed = "Pipeops-Failed"

// Why an agent answers in place of a backend.
const (
	Starting    = "starting"    // it is not known yet which routes there are
	NoRoute     = "no-route"    // no route of the agent has this host and path
	Ambiguous   = "ambiguous"   // servers read the path by different rules, and only some of these lead to a route
	NoBackend   = "no-backend"  // the route names no Service that exists and may be reached
	NotReady    = "not-ready"   // the Service has no pod that accepts connections
	Unreachable = "unreachable" // the backend closed the connection, or answered nonsense
	TimedOut    = "timed-out"   // the backend did not answer in time
	Busy        = "busy"        // the agent has too many requests

	// Of what a route demands of its visitors:
	Denied       = "denied"       // the visitor's address is not let in
	Unauthorized = "unauthorized" // a user and a password are wanted
	TooMany      = "too-many"     // the address sends too many requests, or wrong passwords
	TooLarge     = "too-large"    // the request's body is too large
	SignIn       = "sign-in"      // a session of sign-in is wanted, or a service token
	TokenWanted  = "token-wanted" // a service token is wanted, and there is no sign-in

	// Of a visitor's sign-in:
	SignInFailed = "sign-in-failed" // it was not completed
	NotAdmitted  = "not-admitted"   // the visitor is known, and not let in
	ProviderAway = "provider-away"  // the identity provider cannot be used now
)

// CheckAgent is the User-Agent of the gateway's own requests, by which it finds out whether an App
// answers. They come from a loopback address.
const CheckAgent = "pipeops-gateway-check"

// Headers that tell a backend of the visitor who has signed in: HeaderUser the name or the subject,
// HeaderEmail a verified address, HeaderGroups names with commas between, and HeaderVisitor a
// statement that the agent has signed.
const (
	HeaderUser    = "X-Forwarded-User"
	HeaderEmail   = "X-Forwarded-Email"
	HeaderGroups  = "X-Forwarded-Groups"
	HeaderVisitor = "Pipeops-Visitor"
)

// ofVisitors are the headers that a backend takes for the name of a visitor.
var ofVisitors = map[string]bool{
	HeaderUser: true, HeaderEmail: true, HeaderGroups: true, HeaderVisitor: true,
	"X-Forwarded-Preferred-Username": true, "Remote-User": true,
}

// NamesVisitor reports whether a backend could take a header for the name of a visitor.
func NamesVisitor(name string) bool { return ofVisitors[canonical(name)] }

// CallbackPath is the path of a host to which visitors return who have signed in elsewhere.
const CallbackPath = "/.pipeops/callback"

// StartPatience is how long either end holds a request whose agent, or whose routes, are expected
// to be there in a moment: something restarts.
const StartPatience = 5 * time.Second

// StreamIdle is how long the gateway keeps a stream between two requests. An agent that stops waits
// for longer, so that no request comes on a stream that it closes.
const StreamIdle = time.Second

// ClientHeaders are the headers that tell a backend about its client. The gateway sets them, and
// drops what a client sent. The agent passes them on.
var ClientHeaders = map[string]bool{
	"X-Request-Id": true, "X-Forwarded-For": true, "X-Real-Ip": true, "X-Forwarded-Host": true,
	"X-Forwarded-Proto": true, "X-Forwarded-Port": true, "X-Forwarded-Server": true, "X-Forwarded-Ssl": true,
	"X-Forwarded-Prefix": true, "X-Forwarded-Scheme": true, "Forwarded": true, "X-Client-Ip": true, "True-Client-Ip": true,
	"Cf-Connecting-Ip": true, "X-Cluster-Client-Ip": true, "X-Original-Url": true, "X-Rewrite-Url": true, "Proxy": true,
	HeaderUser: true, HeaderEmail: true, HeaderGroups: true, HeaderVisitor: true, "X-Forwarded-Preferred-Username": true, "Remote-User": true,
	HeaderFailed: true, HeaderKeyWanted: true,
}

// Dropped reports whether a client must not send a header: the gateway sets it, or the App could
// take it for one that the gateway sets, as CGI does where there is a low line for a hyphen. Apps
// take Proxy for the variable HTTP_PROXY (https://httpoxy.org).
func Dropped(name string) bool {
	return ClientHeaders[canonical(name)]
}

func canonical(name string) string {
	return http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-"))
}

// connectionHeaders are about the connection, or about the gateway as a hop on it.
var connectionHeaders = map[string]bool{
	"Connection": true, "Proxy-Connection": true, "Keep-Alive": true, "Proxy-Authenticate": true, "Proxy-Authorization": true,
	"Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true, "Content-Length": true, "Host": true,
	"Via": true, "Max-Forwards": true, HeaderLoop: true,
}

// Reserved reports whether no route may change a header: it says of the client, of the connection
// or of the agent what only the gateway knows.
func Reserved(name string) bool {
	canonical := http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-"))
	return Dropped(name) || connectionHeaders[canonical] || strings.HasPrefix(canonical, "Pipeops-")
}

// Stays reports whether an answer may go on for long: it has no known length, or its connection is
// upgraded.
func Stays(resp *http.Response) bool {
	return resp.StatusCode == http.StatusSwitchingProtocols || resp.ContentLength < 0
}

// IsGRPC reports whether a request is a gRPC call, which needs HTTP/2 at both ends:
// https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md
func IsGRPC(h http.Header) bool {
	kind := h.Get("Content-Type")
	return kind == "application/grpc" || strings.HasPrefix(kind, "application/grpc+") || strings.HasPrefix(kind, "application/grpc;")
}
