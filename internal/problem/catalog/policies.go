package catalog

// policies are refusals that the cluster's owner decides on.
var policies = []Entry{
	{
		"PO-3001", "policy_denied", "Denied by the policy",
		"No rule of the cluster owner's policy allows the command, a rule denies it, or the owner paused all Runners.",
		"Stay within the rule that the message names, or ask the owner to change it.",
		"docs/cluster-owner/policy.md#errors-for-runners",
	},
	{
		"PO-3002", "approval_required", "Approval required",
		"The policy allows the command once the cluster owner has approved this very command.",
		"Send the owner the command in the fix. Send your command again, unchanged, once it is approved.",
		"docs/cluster-owner/policy.md#require-approval-of-commands",
	},
	{
		"PO-3003", "namespace_not_managed", "Namespace not managed",
		"The agent does not manage the namespace, so it changes nothing there.",
		"Use a managed namespace, or hand this one over: `pipeops-runner namespace create AGENT NAME`.",
		"docs/reference/runner-api.md#namespaces",
	},
	{
		"PO-3004", "host_forbidden", "Host not allowed",
		"`fetchHosts` of the policy does not list the host of the repository, chart, source or build.",
		"Use an allowed host, or ask the owner to add this one.",
		"docs/reference/policy.md#hosts-to-fetch-from-fetchhosts",
	},
	{
		"PO-3005", "audit_unavailable", "Audit log not writable",
		"The policy requires a record of each command first, and the agent cannot write its audit log.",
		"Have the owner repair the audit log's storage; the agent's log has the reason.",
		"docs/reference/policy.md#required-audit-audit",
	},
	{
		"PO-3006", "recording_unavailable", "Recording not possible",
		"The policy has sessions recorded, and the agent cannot record this one, so it ended the session.",
		"Have the owner repair the recordings' storage; the agent's log has the reason.",
		"docs/reference/policy.md#recorded-sessions",
	},
	{
		"PO-3007", "recording_full", "Recording full",
		"The recording of the session reached its bound, and the agent ended the command.",
		"Open a new session.",
		"docs/reference/policy.md#recorded-sessions",
	},
}
