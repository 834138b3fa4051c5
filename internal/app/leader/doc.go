// Package leader elects the replica of the agent that reconciles Apps and announces them.
package leader
