// Package gateway serves Apps to the public. It ends TLS, finds the agent by the request's host,
// and proxies the request through that agent's tunnel. It proxies by net/http/httputil and gets its
// certificates by certmagic.
//
// The package does not decide which agent may serve a host: package hosts does. It does not know
// the backend of a route either: the agent finds that by its own routes.
package gateway
