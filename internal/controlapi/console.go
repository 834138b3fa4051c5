package controlapi

import "net/url"

// AgentPage returns the path of an agent's page below the console's URL. The agent goes by its
// name, or by its ID, which no other agent gets.
func AgentPage(agent string) string { return "/agents/" + url.PathEscape(agent) }

// AppPage returns the path of an App's page below the console's URL.
func AppPage(agent, namespace, app string) string {
	return AgentPage(agent) + "/app?" + url.Values{"namespace": {namespace}, "app": {app}}.Encode()
}
