package manifests

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// run is one call about a set.
type run struct {
	bounds
	applier   *Applier
	set       Set
	opts      Options
	inv       inventory      // as it was
	next      inventory      // as it was written last
	given     []*item        // to apply, in the order of the input
	items     []*item        // the same, in the order in which they are applied
	left      []*item        // what left the set
	unsettled *problem.Error // why the final write of the inventory failed
	soonUntil time.Time      // until then, new objects are waited for; zero before the first
}

var setName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// begin takes the set and reads its inventory.
func (a *Applier) begin(ctx context.Context, set Set, o Options) (*run, func(), error) {
	if !setName.MatchString(set.Name) {
		return nil, nil, problem.Errorf(problem.Invalid, "use lower-case letters, digits and -, at most 63", "%.100q is not a name of a set", set.Name).WithField("query.set")
	}
	api, err := a.client()
	if err != nil {
		return nil, nil, err
	}
	leave, err := a.enter(set)
	if err != nil {
		return nil, nil, err
	}
	r := &run{bounds: bounds{api: api, scope: a.scope, policy: o.Admit}, applier: a, set: set, opts: o}
	if err = r.managed(ctx, set.Namespace); err == nil {
		r.inv, err = api.readInventory(ctx, set)
	}
	if err != nil {
		leave()
		return nil, nil, err
	}
	return r, leave, nil
}

// Apply makes the cluster's objects of a set match the given ones. Problems that the cluster can
// detect in advance are an error that lists each, and nothing is done then. Later failures are in
// the result, object by object; the other objects are still applied. Apply does not modify objects.
func (a *Applier) Apply(ctx context.Context, set Set, objects []*unstructured.Unstructured, o Options) (Result, error) {
	r, leave, err := a.start(ctx, set, objects, o)
	if err != nil {
		return Result{}, err
	}
	defer leave()
	if !o.DryRun {
		r.await(ctx)
	}
	return r.result(), nil
}

// start is like Apply without waiting for the objects. It keeps nothing of the objects, and holds
// the set until leave is called.
func (a *Applier) start(ctx context.Context, set Set, objects []*unstructured.Unstructured, o Options) (*run, func(), error) {
	r, leave, err := a.begin(ctx, set, o)
	if err != nil {
		return nil, nil, err
	}
	if err := r.do(ctx, objects); err != nil {
		leave()
		return nil, nil, err
	}
	for _, i := range r.items {
		i.object, i.live = nil, nil
	}
	return r, leave, nil
}

func (r *run) do(ctx context.Context, objects []*unstructured.Unstructured) error {
	var err error
	if r.next, err = r.check(ctx, objects); err != nil || r.opts.DryRun {
		return err
	}
	if err := r.opts.late(ctx); err != nil {
		return err
	}
	if err := r.api.write(ctx, &r.next); err != nil {
		return err
	}
	r.applyAll(ctx)
	r.prune(ctx, func(string) metav1.DeletionPropagation { return metav1.DeletePropagationBackground })
	r.awaitGone(ctx, prunedWait)
	r.settle(ctx)
	return nil
}

// late refuses a command that another replica has carried out and answered meanwhile. What came
// since is spared: the inventory was read before, and is written only in that version.
func (o Options) late(ctx context.Context) error {
	if o.Late == nil {
		return nil
	}
	late, err := o.Late(ctx)
	if late {
		return problem.Errorf(problem.Unavailable, "send it again with its Idempotency-Key: the answer is kept", "another replica of the agent has carried the command out")
	}
	return err
}

// check finds all that is wrong before anything is done, and returns it as one error. It returns
// the inventory to come.
func (r *run) check(ctx context.Context, objects []*unstructured.Unstructured) (inventory, error) {
	if len(objects) == 0 {
		return inventory{}, cmp.Or(r.refusal(), error(problem.Errorf(problem.Invalid, "send manifests, or delete the set", "there is no manifest")))
	}
	r.resolve(ctx, objects)
	if r.opts.Unread == nil { // or the objects that could not be read would be taken for left
		r.leftovers(ctx)
		keepDefinitions(r.left, r.items)
	}
	next := inventory{set: r.set, entries: r.refs(), at: time.Now(), by: r.opts.By, version: r.inv.version}
	for _, i := range r.left {
		if i.live != nil { // missing objects leave the inventory
			next.entries = append(next.entries, i.out.ManifestRef)
		}
	}
	if err := fits(next.entries); err != nil {
		return next, cmp.Or(r.refusal(), err)
	}
	if err := r.plan(ctx); err != nil {
		return next, err
	}
	return next, r.refusal()
}

func (r *run) refs() []Ref {
	refs := make([]Ref, len(r.items))
	for n, i := range r.items {
		refs[n] = i.out.ManifestRef
	}
	return refs
}

// result returns the results of all objects.
func (r *run) result() Result {
	out := Result{Namespace: r.set.Namespace, Name: r.set.Name, DryRun: r.opts.DryRun, Objects: []runnerapi.AppliedObject{}, Ready: !r.opts.DryRun}
	out.Problem = r.unsettled
	for _, i := range slices.Concat(r.items, r.left) {
		out.Objects = append(out.Objects, i.out)
		if i.out.Action == runnerapi.ApplyFailed {
			out.Failed++
		}
		if i.out.State != runnerapi.ObjectReady && (i.out.Action != runnerapi.ApplyPruned || going(i)) && i.out.Action != runnerapi.ApplyKept {
			out.Ready = false
		}
	}
	return out
}

// applyAll applies what the plan contains, one object after the other, because their order matters.
func (r *run) applyAll(ctx context.Context) {
	for _, i := range r.items {
		var err error
		switch {
		case i.out.Action != runnerapi.ApplyUnchanged:
			err = r.apply(ctx, i)
		case kindOf(i.out.ManifestRef) == kindNamespace: // the agent's rights in it may still be missing
			err = r.applier.config.Manage(ctx, i.out.Name)
		}
		if err != nil {
			i.fail(i.located(err))
		}
	}
}

func (r *run) apply(ctx context.Context, i *item) error {
	err := r.applyOnce(ctx, i)
	if i.pending && i.soon(err) && r.soonUntil.IsZero() {
		r.soonUntil = time.Now().Add(servedLimit)
	}
	for i.pending && i.soon(err) && time.Now().Before(r.soonUntil) && retry.Wait(ctx, firstPause) {
		err = r.applyOnce(ctx, i)
	}
	if err != nil {
		return err
	}
	switch kindOf(i.out.ManifestRef) {
	case kindNamespace:
		return r.applier.config.Manage(ctx, i.out.Name)
	case kindCRD:
		if err := r.established(ctx, i); err != nil {
			return err
		}
		return r.api.kinds.forget()
	}
	return nil
}

// soon reports whether the API server may be about to serve a kind that it lists, to accept rights
// that were just granted, or to judge by a definition that was just changed.
func (i *item) soon(err error) bool {
	if err == nil {
		return false
	}
	p := asProblem(err)
	return i.redefined && p.Code == problem.Invalid || p.Code == problem.NotFound || p.Code == problem.Unavailable || p.Code == problem.Forbidden && strings.HasPrefix(p.Detail, missingRight)
}

func (r *run) applyOnce(ctx context.Context, i *item) error {
	if i.pending { // its kind or namespace should exist now, and another owner may have the object
		if err := r.settlePending(ctx, i); err != nil {
			return err
		}
	}
	applied, err := r.patch(ctx, i, false)
	if err != nil {
		return problemOf(err, i.out.ManifestRef, "applying it")
	}
	i.live = identityOf(applied)
	return nil
}

// settlePending checks what could not be checked before.
func (r *run) settlePending(ctx context.Context, i *item) error {
	mapping, _, err := r.mapping(i.out.ManifestRef)
	if err != nil {
		return err
	}
	i.mapping = mapping
	if i.out.Namespace != "" {
		if err := r.managed(ctx, i.out.Namespace); err != nil {
			return err
		}
	}
	if err := r.find(ctx, i); err != nil {
		return err
	}
	if i.live != nil && i.out.Action == runnerapi.ApplyCreated { // the list of kinds lagged behind
		i.out.Action = runnerapi.ApplyConfigured
	}
	return ownedByOther(i.live, r.set)
}

// patch uses server-side apply: fields that others have set stay theirs, unless the call overrides
// that.
func (r *run) patch(ctx context.Context, i *item, dryRun bool) (*unstructured.Unstructured, error) {
	u := i.object
	if i.live != nil {
		u = u.DeepCopy()
		u.SetUID(i.live.GetUID()) // not another object of that name
	}
	body, err := json.Marshal(u.Object)
	if err != nil {
		return nil, err
	}
	opts := metav1.PatchOptions{FieldManager: objectmeta.FieldManager, FieldValidation: metav1.FieldValidationStrict}
	if r.opts.Force {
		opts.Force = &r.opts.Force
	}
	if dryRun {
		opts.DryRun = []string{metav1.DryRunAll}
	}
	return r.api.on(i.mapping, u.GetNamespace()).Patch(ctx, u.GetName(), types.ApplyPatchType, body, opts)
}

// identityOf returns only the identity of an object.
func identityOf(u *unstructured.Unstructured) *unstructured.Unstructured {
	if u == nil {
		return nil
	}
	bare := &unstructured.Unstructured{Object: map[string]any{}}
	bare.SetUID(u.GetUID())
	return bare
}

// errUnserved means that the API server does not serve the kind of an object.
var errUnserved = errors.New("its kind is not served")

// find reads the current state of an object. It returns an errUnserved if that cannot be known.
func (r *run) find(ctx context.Context, i *item) error {
	live, err := r.api.on(i.mapping, i.out.Namespace).Get(ctx, i.out.Name, metav1.GetOptions{})
	switch {
	case kubeproblem.IsUnserved(err):
		i.live = nil
		return errors.Join(errUnserved, problemOf(err, i.out.ManifestRef, "reading it"))
	case apierrors.IsNotFound(err):
		i.live = nil
		return nil
	case err != nil:
		return problemOf(err, i.out.ManifestRef, "reading it")
	}
	i.live = live
	return nil
}

// orAbsent passes on an error of find, but for that of a kind that is not served: then the object
// is not there.
func orAbsent(err error) error {
	if errors.Is(err, errUnserved) {
		return nil
	}
	return err
}

// settle writes what the set holds now: what was applied, and what has left the set but still
// exists. If that fails, the inventory lists too many objects and is incomplete. The next apply or
// deletion of the set relies on it.
func (r *run) settle(ctx context.Context) {
	r.next.entries, r.next.complete = r.held()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleLimit)
	defer cancel()
	if err := r.api.write(ctx, &r.next); err != nil {
		r.unsettled = asProblem(err)
	}
}

// held returns what the set holds, and whether everything was done.
func (r *run) held() (held []Ref, complete bool) {
	held, complete = r.refs(), true
	for _, i := range r.items {
		complete = complete && i.out.Action != runnerapi.ApplyFailed
	}
	for _, i := range r.left {
		switch {
		case i.out.Action == runnerapi.ApplyFailed, going(i):
			complete = false
			held = append(held, i.out.ManifestRef)
		case i.out.Action == runnerapi.ApplyKept && i.live != nil: // it still belongs to the set
			held = append(held, i.out.ManifestRef)
		}
	}
	return held, complete
}

// servedLimit is how long the API server may take to serve what a set has just created, in total.
const servedLimit = 15 * time.Second

// settleLimit is for the last write, which is made even if the caller has gone.
const settleLimit = 10 * time.Second
