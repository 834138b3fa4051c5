// Package service tests the agent as a service of a machine: a real systemd, set up by the exact
// commands of docs/cluster-owner/service.md, beside a real cluster.
package service
