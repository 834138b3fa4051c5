// Package attackers plays six attackers against the whole system: a Runner, a Git server, people
// who open pull requests, a chart repository, an image registry, and an agent. Each has a table of
// attempts. None may read a Secret, write outside its namespaces, make a pod beyond Kubernetes'
// baseline, or have the agent or the control plane restart or grow. The control plane is a process,
// and the agent a pod of a real cluster.
package attackers
