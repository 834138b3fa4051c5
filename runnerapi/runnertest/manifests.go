package runnertest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Apply implements backend.Manifests: of documents it takes the names, and all is ready
// but what has "slow" in its name; what has "broken" fails.
func (b fakeManifests) Apply(ctx context.Context, key runnerapi.Key, text []byte, opts runnerapi.ApplyOptions) (runnerapi.ApplyResult, error) {
	if err := b.enter(ctx, Call{Verb: "Manifests.Apply", Key: key, WriteOptions: opts.WriteOptions}); err != nil {
		return runnerapi.ApplyResult{}, err
	}
	set := runnerapi.ManifestSet{Namespace: key.Namespace, Name: key.Name, Complete: true, AppliedAt: epoch, AppliedBy: opts.Caller.Runner}
	result := runnerapi.ApplyResult{Namespace: key.Namespace, Name: key.Name, DryRun: opts.DryRun, Ready: !opts.DryRun}
	var refs []runnerapi.ManifestRef
	line := 1
	for n, doc := range bytes.Split(text, []byte("\n---\n")) {
		var head struct {
			APIVersion, Kind string
			Metadata         struct{ Name, Namespace string }
		}
		if err := yaml.Unmarshal(doc, &head); err != nil || head.Kind == "" {
			return result, problem.Errorf(problem.Invalid, "correct the document", "kind is missing").
				WithField("kind").WithLocation(fmt.Sprintf("document %d, line %d", n+1, line))
		}
		line += bytes.Count(doc, []byte("\n")) + 2
		refs = append(refs, runnerapi.ManifestRef{APIVersion: head.APIVersion, Kind: head.Kind, Namespace: cmp.Or(head.Metadata.Namespace, key.Namespace), Name: head.Metadata.Name})
	}
	opts.Read(refs)
	for _, ref := range refs {
		if err := opts.Admit(ref.Namespace, runnerapi.ObjectIntent{Kind: ref.Kind}); err != nil {
			return result, err
		}
		o := runnerapi.AppliedObject{ManifestRef: ref, Action: runnerapi.ApplyCreated, State: fakeState(ref.Name)}
		if opts.Diff {
			o.Diff = "--- live\n+++ applied\n+kind: " + ref.Kind + "\n"
		}
		if bytes.Contains([]byte(ref.Name), []byte("broken")) {
			o.Action, o.State, o.Problem = runnerapi.ApplyFailed, "", problem.Errorf(problem.Conflict, "use another name", "it exists")
			result.Failed++
		}
		result.Ready = result.Ready && o.State == runnerapi.ObjectReady
		result.Objects = append(result.Objects, o)
		set.Objects = append(set.Objects, runnerapi.SetObject{ManifestRef: ref, State: fakeState(ref.Name)})
	}
	set.Count = len(set.Objects)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, old := range b.sets[key].Objects {
		if !opts.NoPrune && !slices.Contains(refs, old.ManifestRef) {
			result.Objects = append(result.Objects, runnerapi.AppliedObject{ManifestRef: old.ManifestRef, Action: runnerapi.ApplyPruned})
		}
	}
	if !opts.DryRun {
		if b.sets == nil {
			b.sets = map[runnerapi.Key]runnerapi.ManifestSet{}
		}
		b.sets[key] = set
	}
	return result, nil
}

func fakeState(name string) runnerapi.ObjectState {
	if bytes.Contains([]byte(name), []byte("slow")) {
		return runnerapi.ObjectInProgress
	}
	return runnerapi.ObjectReady
}

// Get implements backend.Manifests.
func (b fakeManifests) Get(ctx context.Context, key runnerapi.Key) (runnerapi.ManifestSet, error) {
	if err := b.enter(ctx, Call{Verb: "Manifests.Get", Key: key}); err != nil {
		return runnerapi.ManifestSet{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	set, ok := b.sets[key]
	if !ok {
		return set, problem.Errorf(problem.NotFound, "see which there are", "there is no set %s", key)
	}
	ready := set.Settled()
	set.Ready = &ready
	return set, nil
}

// List implements backend.Manifests.
func (b fakeManifests) List(ctx context.Context, namespace string) ([]runnerapi.ManifestSet, error) {
	if err := b.enter(ctx, Call{Verb: "Manifests.List", Key: runnerapi.Key{Namespace: namespace}}); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var sets []runnerapi.ManifestSet
	for key, set := range b.sets {
		if key.Namespace == namespace {
			set.Objects = nil
			sets = append(sets, set)
		}
	}
	return sets, nil
}

// Delete implements backend.Manifests.
func (b fakeManifests) Delete(ctx context.Context, key runnerapi.Key, opts runnerapi.ApplyOptions) (runnerapi.ApplyResult, error) {
	set, err := b.Manifests().Get(ctx, key)
	if err != nil {
		return runnerapi.ApplyResult{}, err
	}
	result := runnerapi.ApplyResult{Namespace: key.Namespace, Name: key.Name, DryRun: opts.DryRun, Ready: !opts.DryRun}
	sticks := strings.Contains(key.Name, "sticky") && set.Complete && !opts.DryRun
	for _, o := range set.Objects {
		gone := runnerapi.AppliedObject{ManifestRef: o.ManifestRef, Action: runnerapi.ApplyPruned}
		if sticks {
			gone.State, gone.Message = runnerapi.ObjectInProgress, "waits for pod "+key.Name+"-0 to stop"
			result.Ready = false
		}
		result.Objects = append(result.Objects, gone)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case sticks: // until it is deleted again
		set.Complete = false
		b.sets[key] = set
	case !opts.DryRun:
		delete(b.sets, key)
	}
	return result, nil
}
