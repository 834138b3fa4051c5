// Package webhook sends events to the operator's addresses over HTTPS: signed as Standard Webhooks
// specifies (https://www.standardwebhooks.com), at least once, and in order for each agent. The
// store holds what is still to be sent, so it outlives a restart. The events come from the broker.
package webhook
