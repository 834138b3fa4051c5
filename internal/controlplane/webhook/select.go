package webhook

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
)

// types are those that a webhook may be for; AGENT.*, APP.*, ROUTE.* and ALERT.* as well.
var types = []announce.Type{
	announce.AgentRegistered, announce.AgentOnline, announce.AgentOffline, announce.AgentUpdated, announce.AgentRemoved, announce.AgentCloned,
	announce.AppProgressing, announce.AppHealthy, announce.AppDegraded, announce.AppFailed, announce.AppRemoved,
	announce.RouteServing, announce.RouteSuspended,
	announce.AlertFiring, announce.AlertResolved,
}

// groups are what a webhook may be for instead of single types.
var groups = []string{"agent.*", "app.*", "route.*", "alert.*"}

// TypeTest is the type of what `webhook test` sends. It is in no timeline.
const TypeTest = announce.TypePrefix + "webhook.test"

// Types returns what a webhook may be for: each group, and the types of the group after it.
func Types() []string {
	var list []string
	for _, group := range groups {
		list = append(list, group)
		for _, t := range types {
			if strings.HasPrefix(string(t), strings.TrimSuffix(group, "*")) {
				list = append(list, string(t))
			}
		}
	}
	return list
}

// CheckTypes returns an error for an invalid list of types.
func CheckTypes(list []string) error {
	for _, t := range list {
		if !slices.Contains(groups, t) && !slices.Contains(types, announce.Type(t)) {
			words := make([]string, len(types))
			for i, known := range types {
				words[i] = string(known)
			}
			return fmt.Errorf("--type: %q is not a type of event; there are %s, and agent.*, app.*, route.* and alert.*", t, strings.Join(words, ", "))
		}
	}
	return nil
}

// wants reports whether a webhook is for an event of an agent with such labels.
func wants(hook store.Webhook, t announce.Type, labels func() (map[string]string, error)) (bool, error) {
	ofType := func(want string) bool {
		if group, ok := strings.CutSuffix(want, "*"); ok {
			return strings.HasPrefix(string(t), group)
		}
		return want == string(t)
	}
	if !hook.Enabled() || len(hook.Types) > 0 && !slices.ContainsFunc(hook.Types, ofType) {
		return false, nil
	}
	if hook.Agents == "" {
		return true, nil
	}
	grant, err := credentials.ParseGrant(hook.Agents)
	if err != nil {
		return false, nil //nolint:nilerr // it was checked when it was made; what cannot be read selects nothing
	}
	has, err := labels()
	return err == nil && grant.Allows(has), err
}
