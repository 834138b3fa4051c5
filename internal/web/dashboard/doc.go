// Package dashboard is the pages for the cluster's owner. They show what the cluster says, read
// with the rights of the kubeconfig that the owner has, and change Apps as the owner's kubectl
// would. They need neither the agent nor the control plane nor the internet.
package dashboard
