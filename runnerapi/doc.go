// Package runnerapi is the wire between a Runner and an agent: its types with their validation, the
// codes of errors, and the table of calls. Package client is for Runners, package server for the
// agent.
package runnerapi
