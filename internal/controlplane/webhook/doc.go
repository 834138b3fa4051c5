// Package webhook sends events to addresses of the operator's over HTTPS: signed as
// Standard Webhooks says (https://www.standardwebhooks.com), at least once, and in
// order for each agent. What is still to be sent is in the store, so it outlives a
// restart. It does not decide what is an event: that comes from the broker.
package webhook
