package catalog

// registrations are errors between an agent and its control plane.
var registrations = []Entry{
	{
		"PO-4001", "token_unknown", "Token unknown",
		"The control plane does not know the enrolment token: it is mistyped, deleted, or of another control plane.",
		"Copy the whole token again, or create one: `pipeops-controlplane token create`.",
		"docs/operator/enrolment.md",
	},
	{
		"PO-4002", "token_expired", "Token expired",
		"The enrolment token is past its expiry. Registered agents are not affected.",
		"Create a new token: `pipeops-controlplane token create`.",
		"docs/operator/enrolment.md",
	},
	{
		"PO-4003", "token_revoked", "Token revoked",
		"The operator revoked the enrolment token.",
		"Ask the operator for another token.",
		"docs/operator/enrolment.md",
	},
	{
		"PO-4004", "token_used_up", "Token used up",
		"The enrolment token has registered as many agents as it may.",
		"Create a new token; `--uses` sets for how many agents.",
		"docs/operator/enrolment.md",
	},
	{
		"PO-4005", "token_rotated", "Token replaced",
		"The token has a new secret, and the old one is no longer valid.",
		"Use the token that `pipeops-controlplane token rotate` printed.",
		"docs/operator/enrolment.md#rotate-and-revoke-tokens",
	},
	{
		"PO-4006", "agent_revoked", "Agent revoked",
		"The operator revoked this agent. Its certificate and tunnel are refused; Apps keep running.",
		"Ask the operator. To connect the cluster again, register with a new token.",
		"docs/operator/enrolment.md#register-an-agent-again",
	},
	{
		"PO-4007", "agent_unknown", "Agent unknown",
		"The control plane does not know this agent. Its database may be new or restored from an older backup.",
		"Register the agent again with a new token.",
		"docs/operator/replace-control-plane.md",
	},
	{
		"PO-4008", "name_taken", "Name taken",
		"An agent of another cluster already has this name.",
		"Choose another CLUSTER_NAME, or revoke the other agent: `pipeops-controlplane agent revoke AGENT`.",
		"docs/operator/enrolment.md#register-an-agent-again",
	},
	{
		"PO-4009", "clock_skew", "Clocks differ",
		"The clocks of the agent and the control plane differ by more than five minutes, so certificates seem invalid.",
		"Set the wrong clock: `timedatectl set-ntp true`.",
		"docs/cluster-owner/install.md#choice-of-kubernetes",
	},
	{
		"PO-4010", "approval_pending", "Waiting for approval",
		"The token's registrations wait until an operator approves them. The agent continues by itself then.",
		"Ask the operator to compare the key and run `pipeops-controlplane agent approve NAME`.",
		"docs/operator/enrolment.md#approve-registrations",
	},
	{
		"PO-4011", "enrolment_denied", "Registration denied",
		"The operator denied this agent's registration.",
		"Ask the operator, who can still approve it.",
		"docs/operator/enrolment.md#approve-registrations",
	},
	{
		"PO-4012", "identity_cloned", "Identity used twice",
		"The agent's identity was copied to another cluster, where it is not valid.",
		"Give the copy a new token and another CLUSTER_NAME, or delete the copy.",
		"docs/operator/enrolment.md#cloned-identities",
	},
	{
		"PO-4013", "certificate_expired", "Certificate expired",
		"The certificate is past its end, or not valid yet. An agent renews its own; a Runner may have missed its renewal.",
		"Check the clock. For a Runner, create new credentials.",
		"docs/operator/certificates.md",
	},
	{
		"PO-4014", "certificate_unknown", "Certificate unknown",
		"The certificate is of another CA, was replaced by a newer one, or is missing.",
		"Register the agent again, or create the Runner's credentials again.",
		"docs/operator/certificates.md#recovery-of-offline-agents-and-runners",
	},
	{
		"PO-4015", "wrong_ca", "Control plane's CA not trusted",
		"The server's certificate is not of the CA in the token. A proxy may inspect TLS, or the token is of another control plane.",
		"Check PIPEOPS_CONTROL_PLANE_URL and the token. For a CA of your own, set PIPEOPS_CA_FILE.",
		"docs/troubleshooting.md#the-agent",
	},
	{
		"PO-4016", "name_mismatch", "Certificate for another name",
		"The control plane's certificate does not contain the name in PIPEOPS_CONTROL_PLANE_URL.",
		"Use a name of the certificate, or start `pipeops-controlplane serve` with --advertise-api=https://NAME.",
		"docs/operator/certificates.md",
	},
	{
		"PO-4017", "service_account_refused", "Service account refused",
		"The enrolment token does not trust the pod's service-account token: its key, issuer, audience or subject differ. Or it expired, or was used with another key.",
		"Compare the agent's volume with `pipeops-controlplane token list -o yaml`. For a cluster with new keys, run `pipeops-controlplane token rotate ID --kubernetes-jwks FILE`.",
		"docs/reference/identities.md#join-without-a-secret",
	},
}
