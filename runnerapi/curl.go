package runnerapi

import (
	"net/http"
	"strings"
)

// Curl returns the call as a curl command. $AGENT is the agent's name in TLS and $EDGE the address
// of the control plane's edge; docs/reference/runner-api.md describes where they and the three
// files come from.
func (c Call) Curl() string { return curl(c.Method, c.exampleURL(), c.Body) }

func curl(method, path, body string) string {
	line := `curl -fsS --cacert ca.pem --cert runner.pem --key runner.key --connect-to "::$EDGE"`
	if method != http.MethodGet {
		line += " -X " + method
	}
	line += ` "https://$AGENT` + path + `"`
	if body != "" {
		line += " -H 'Content-Type: application/json' -d '" + body + "'"
	}
	return line
}

// exampleURL returns the path with the objects that the examples are about.
func (c Call) exampleURL() string {
	namespace, name, query := "production", "web", ""
	switch {
	case strings.HasPrefix(c.Path, SecretPath):
		name = "web-env"
	case strings.HasPrefix(c.Path, ConfigMapPath):
		name = "web-settings"
	case strings.HasPrefix(c.Path, jobRoute):
		name = "migrate"
	case strings.HasPrefix(c.Path, pipelineRoute):
		name = "release"
	case c.Path == ApplyPath:
		return c.Path + "?namespace=production&set=web-extras"
	case strings.HasPrefix(c.Path, SetPath):
		name = "web-extras"
	case strings.HasPrefix(c.Path, releaseRoute):
		name = "guide"
		if c.Method != http.MethodGet { // or the next command finds it at work
			query = "?wait=60s"
		}
	case strings.HasPrefix(c.Path, nodeRoute):
		name = "$NODE"
	case c.Path == namespaceRoute:
		namespace = "staging"
	}
	return strings.NewReplacer("{path}", "api/v1/pods", "{namespace}", namespace, "{name}", name, "{number}", "12", "{id}", "$OPERATION").Replace(c.Path) + query
}
