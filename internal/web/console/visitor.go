package console

import (
	"context"
	"sync"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operators"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/web"
)

// Visitor is the Value of a session: the operator who has signed in.
type Visitor struct {
	Operator store.Operator
	// Identify returns the caller of the operator API, as it is at the time of each call.
	Identify func(context.Context) (operatorapi.Caller, error)
}

// visitor returns the operator who has signed in. The zero value, which has no right, is for a
// request without a session.
func visitor(ctx context.Context) Visitor {
	session := web.SessionOf(ctx)
	if session == nil {
		return Visitor{}
	}
	v, _ := session.Value.(Visitor)
	return v
}

// calling returns the context for calls of the operator API by the operator who has signed in.
func calling(ctx context.Context) context.Context {
	return operatorapi.WithCaller(ctx, visitor(ctx).Identify)
}

// roles are the roles that calls need.
var roles = sync.OnceValue(func() map[string]string {
	roles := map[string]string{}
	for _, call := range operatorapi.Calls() {
		roles[call.ID] = call.Role
	}
	return roles
})

// may reports whether an operator may make a call, for what a page offers. The API decides.
func (v Visitor) may(call string) bool { return operators.Includes(v.Operator.Role, roles()[call]) }
