package server

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/params"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/audit"
)

type (
	applyOutput struct {
		Status int
		Body   runnerapi.ApplyResult
	}
	setOutput     struct{ Body runnerapi.ManifestSet }
	setListOutput struct{ Body runnerapi.ManifestSetList }
)

const (
	// applyTime is how long applying may take, without the wait for the applied objects.
	applyTime = 5 * time.Minute
)

// manifestCalls are the calls about sets of manifests.
type manifestCalls struct {
	*calls
	manifests backend.Manifests
}

func (s *manifestCalls) routes() {
	apply := mayGoOn(operation(runnerapi.ApplyCall, "Manifests", "Apply manifests",
		"Applies a stream of YAML documents, or JSON, as a set: server-side and in the right order, without taking over what others own, "+
			"and prunes what was in the set before and is not any more. All that is wrong with them, as far as the cluster can say before, is one error that names "+
			"each document and line, up to 20, and nothing was done. What goes wrong later stands in the answer, object by object. "+
			"With wait it answers 200 once all objects are ready, and 202 when some are not; and 200 when some failed. "+
			"The customer's policy has to name this command and the kinds.", runnerapi.MaxManifestsBody))
	apply.SkipValidateBody = true // the body is not JSON, and its handler decodes it
	registerLong(s.calls, apply, s.applyManifests)
	register(s.calls, operation("list-sets", "Manifests", "List the sets of a namespace",
		"The sets whose inventory is in the namespace, at most 100, without their objects.", 0), s.listSets)
	register(s.calls, operation("get-set", "Manifests", "Get a set of manifests",
		"What it holds, and how each object is.", 0), s.getSet)
	registerLong(s.calls, mayGoOn(operation("delete-set", "Manifests", "Delete a set of manifests",
		"Deletes what it holds, and its inventory when nothing is left, the pods of its objects neither. It answers 202 when something "+
			"is not gone after 20 s, and says what holds it; it continues in the cluster, and the set stays until it is deleted again with "+
			"nothing left. The customer's policy has to name this command and the kinds.", 0)), s.deleteSet)
	s.describeManifests()
}

// describeManifests adds what huma cannot derive: the body is manifests, in either form.
func (s *manifestCalls) describeManifests() {
	op := operationAt(s.api.OpenAPI(), http.MethodPost, runnerapi.ApplyPath)
	op.RequestBody.Required = true
	yaml := &huma.Schema{Type: huma.TypeString, Description: "YAML documents, separated by lines ---."}
	op.RequestBody.Content = map[string]*huma.MediaType{
		"application/yaml": {Schema: yaml}, "application/x-yaml": {Schema: yaml}, "text/yaml": {Schema: yaml},
		"application/json": {Schema: &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true, Description: "A manifest, or a List of them."}},
	}
}

func (s *manifestCalls) applyManifests(ctx context.Context, in *struct {
	params.Apply
	params.Write
	params.Wait
	RawBody []byte `contentType:"application/json"`
}) (*applyOutput, error) {
	wait, err := in.Duration()
	if err != nil {
		return nil, err
	}
	set := runnerapi.Key{Namespace: in.Namespace, Name: in.Set}
	ctx, cancel := context.WithTimeout(ctx, min(wait+applyTime, runnerapi.MaxWait+s.timeout))
	defer cancel()
	opts := s.applyOptions(ctx, in.Write)
	opts.NoPrune, opts.Diff, opts.Wait, opts.ForceConflicts = !in.Prune, in.Diff, wait, in.ForceConflicts
	result, err := s.manifests.Apply(ctx, set, in.RawBody, opts)
	if err != nil {
		return nil, err
	}
	return applied(result), nil
}

func applied(result runnerapi.ApplyResult) *applyOutput {
	out := &applyOutput{Status: http.StatusOK, Body: result}
	out.Body.Objects = notNil(result.Objects)
	if !result.Ready && !result.DryRun && result.Failed == 0 {
		out.Status = http.StatusAccepted
	}
	return out
}

// applyOptions returns options with which the policy is asked about each object.
func (s *manifestCalls) applyOptions(ctx context.Context, p params.Write) runnerapi.ApplyOptions {
	return runnerapi.ApplyOptions{
		WriteOptions: s.writeOptions(ctx, p),
		Admit: func(namespace string, o runnerapi.ObjectIntent) error {
			return s.guard.Bring(ctx, func(i *runnerapi.Intent) { i.Namespace, i.Objects = namespace, []runnerapi.ObjectIntent{o} })
		},
		Read: func(refs []runnerapi.ManifestRef) { audit.NoteObjects(ctx, refs) },
	}
}

func setKey(p params.ManifestSet) runnerapi.Key {
	return runnerapi.Key{Namespace: p.Namespace, Name: p.Name}
}

func (s *manifestCalls) getSet(ctx context.Context, in *params.ManifestSet) (*setOutput, error) {
	set, err := s.manifests.Get(ctx, setKey(*in))
	return &setOutput{Body: set}, err
}

func (s *manifestCalls) listSets(ctx context.Context, in *struct {
	params.Namespace
	params.Page
}) (*setListOutput, error) {
	items, err := s.manifests.List(ctx, in.Namespace.Namespace)
	items, rest, err := paged(in.Page, items, err, func(o runnerapi.ManifestSet) string { return keyOf(o.Namespace, o.Name) })
	return &setListOutput{Body: runnerapi.ManifestSetList{Items: items, Page: rest}}, err
}

func (s *manifestCalls) deleteSet(ctx context.Context, in *struct {
	params.ManifestSet
	params.Write
}) (*applyOutput, error) {
	ctx, cancel := context.WithTimeout(ctx, applyTime)
	defer cancel()
	result, err := s.manifests.Delete(ctx, setKey(in.ManifestSet), s.applyOptions(ctx, in.Write))
	if err != nil {
		return nil, err
	}
	return applied(result), nil
}
