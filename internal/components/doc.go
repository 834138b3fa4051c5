// Package components installs what a cluster lacks: ingress, certificates, metrics, logs,
// dashboards and costs. It works with its caller's rights; the agent itself gains none.
//
// [Look] reads the cluster, [NewPlan] decides without a cluster, and [Installer] carries the plan
// out with the Helm SDK.
package components
