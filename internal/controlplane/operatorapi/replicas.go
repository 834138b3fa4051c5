package operatorapi

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/peerlink"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// ListReplicas asks each control plane for its own checks.
var ListReplicas = Call[struct{}, List[peerlink.Replica]]{
	Description{Method: "GET", Path: Prefix + "replicas", ID: "list-replicas", Role: administration.RoleViewer, Command: "replica list",
		Summary: "List the control planes that serve the database, with their checks"},
	func(ctx context.Context, a *administration.Admin, _ *struct{}) (List[peerlink.Replica], error) {
		if a.Settings().Replicas == nil {
			return List[peerlink.Replica]{}, problem.Errorf(problem.Conflict, "leave out --offline, or ask one control plane with `pipeops-controlplane ready`",
				"only a control plane that serves knows the others")
		}
		return listOf(a.Settings().Replicas(ctx), nil)
	},
}
