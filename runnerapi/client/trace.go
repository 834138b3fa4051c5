package client

import (
	"strings"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// callName returns the ID of the call that a request is, by which its span goes: the path has names
// in it.
func callName(method, path string) string {
	asked := strings.Split("/v1"+path, "/")
	for _, call := range runnerapi.Calls() {
		if call.Method == method && call.ID != "" && isRoute(strings.Split(call.Path, "/"), asked) {
			return call.ID
		}
	}
	return runnerapi.OtherCall
}

func isRoute(route, path []string) bool {
	if len(route) != len(path) {
		return false
	}
	for i, part := range route {
		if part != path[i] && !strings.HasPrefix(part, "{") {
			return false
		}
	}
	return true
}
