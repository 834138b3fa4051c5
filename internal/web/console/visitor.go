package console

import (
	"context"
	"sync"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/web"
)

// Visitor is the signed-in operator, which a session keeps as its Value.
type Visitor struct {
	Operator store.Operator
	// Identify returns the caller of the operator API, as it is at the time of each call.
	Identify func(context.Context) (operatorapi.Caller, error)
}

// visitor returns the signed-in operator. Without a session it returns the zero value, which has no
// right.
func visitor(ctx context.Context) Visitor {
	session := web.SessionOf(ctx)
	if session == nil {
		return Visitor{}
	}
	v, _ := session.Value.(Visitor)
	return v
}

// calling returns a context in which the signed-in operator calls the operator API.
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
func (v Visitor) may(call string) bool {
	return administration.Includes(v.Operator.Role, roles()[call])
}
