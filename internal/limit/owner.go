package limit

import "context"

// Owner is for whom work is done: a namespace, and the Runner in whose name it is. A Runner may
// have many namespaces, and a namespace many Runners. A name that is empty has no share.
type Owner struct{ Namespace, Runner string }

// PerOwner is how many places one namespace gets, and one Runner in all its namespaces.
type PerOwner struct{ Namespace, Runner int }

func (p PerOwner) claims(o Owner) []claim {
	all := make([]claim, 0, 2)
	if o.Namespace != "" {
		all = append(all, claim{"namespace/" + o.Namespace, p.Namespace})
	}
	if o.Runner != "" {
		all = append(all, claim{"runner/" + o.Runner, p.Runner})
	}
	return all
}

type runnerKey struct{}

// WithRunner returns a context of work in the name of a Runner.
func WithRunner(ctx context.Context, runner string) context.Context {
	return context.WithValue(ctx, runnerKey{}, runner)
}

// OwnerOf returns for whom work in a namespace is done.
func OwnerOf(ctx context.Context, namespace string) Owner {
	runner, _ := ctx.Value(runnerKey{}).(string)
	return Owner{Namespace: namespace, Runner: runner}
}

// OwnerShares divides a number of places by namespace and by Runner. So a Runner with several
// namespaces leaves places to other Runners.
type OwnerShares struct {
	each   PerOwner
	shares *Shares
}

// NewOwnerShares returns all places.
func NewOwnerShares(all int, each PerOwner) *OwnerShares {
	return &OwnerShares{each: each, shares: NewShares(all, 0)}
}

// Wait takes a place for an owner, like Shares.Wait.
func (s *OwnerShares) Wait(ctx context.Context, o Owner) (leave func(), ok bool) {
	return s.shares.wait(ctx, s.each.claims(o))
}
