package update

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/distribution/reference" // parses image names as Kubernetes and container runtimes do
	"github.com/opencontainers/go-digest"

	corev1 "k8s.io/api/core/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/kube"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/release"
)

// agentImage is the name of the agent's image in a manifest.
const agentImage = "pipeops/agent"

// maxNote bounds the record that is read from the Deployment.
const maxNote = 16 << 10

// Cluster is the part of Kubernetes that Pods needs.
type Cluster interface {
	Own(ctx context.Context) (kube.Own, error)
	SetOwn(ctx context.Context, o kube.Own, image string, note []byte) error
	PodsOf(ctx context.Context, o kube.Own, image string) ([]*corev1.Pod, error)
}

// Pods is the Target of an agent in a cluster: the image of its own Deployment. The rolling update
// keeps the old pod until the new one is ready, that is, registered and with its tunnel up. Until
// then the old pod watches the new one, and restores the former image in time if necessary. The
// record is an annotation of the Deployment, so that any replica, of either version, continues
// where another ended.
type Pods struct {
	Cluster  Cluster
	Deadline time.Duration // for one pod
	Now      func() time.Time
}

var _ Target = Pods{}

// Fits implements Target.
func (p Pods) Fits(m *release.Manifest) error {
	if _, ok := m.Image(agentImage); !ok {
		return refuse("image: the release has none of the name %s", agentImage)
	}
	return nil
}

// Recall implements Target.
func (p Pods) Recall(ctx context.Context) (Record, error) {
	own, err := p.Cluster.Own(ctx)
	if problem.Is(err, problem.Forbidden) {
		return Record{}, errors.New("rights: the agent may not change its own Deployment (fix: kubectl apply --server-side -f self-update.yaml; with Helm set selfUpdate.enabled=true)")
	}
	if err != nil {
		return Record{}, err
	}
	return decodeNote(own.Note), nil
}

// decodeNote treats an unreadable record as none: it is the agent's own, and a user may have edited
// it.
func decodeNote(text []byte) Record {
	var r Record
	if len(text) > maxNote || json.Unmarshal(text, &r) != nil {
		return Record{}
	}
	return r
}

// Try implements Target.
func (p Pods) Try(ctx context.Context, c Candidate) error {
	own, err := p.Cluster.Own(ctx)
	if err != nil {
		return err
	}
	if !own.Rolled() {
		return errBusy
	}
	published, _ := c.Manifest.Image(agentImage)
	image, err := pinned(own.Image, published.Digest)
	if err != nil {
		return err
	}
	deadline := p.Now()
	for range max(1, own.Replicas()) { // which are replaced one after the other
		deadline = deadline.Add(p.Deadline)
	}
	return p.write(ctx, own, image, Record{
		State: controlapi.UpdateUpdating, Offer: c.Offer.ID, From: c.From, To: c.Manifest.Version,
		FromImage: own.Image, ToImage: image, Deadline: deadline.UTC(),
	})
}

// pinned returns the signed image in the repository from which the agent runs, which may be a
// mirror of the cluster owner's.
func pinned(running, signed string) (string, error) {
	ref, err := reference.Parse(running)
	named, ok := ref.(reference.Named)
	if err != nil || !ok {
		return "", refuse("image: the agent runs from %q, which is not an image's name", running)
	}
	next, err := reference.WithDigest(reference.TrimNamed(named), digest.Digest(signed))
	if err != nil {
		return "", refuse("image: %v", err)
	}
	return next.String(), nil
}

// Watch implements Target.
func (p Pods) Watch(ctx context.Context, r Record) error {
	own, err := p.Cluster.Own(ctx)
	if err != nil {
		return err
	}
	if now := decodeNote(own.Note); now != r {
		return nil // another replica has updated it
	}
	switch {
	case own.Image != r.ToImage:
		r.State, r.Reason = controlapi.UpdateFailed, "the image of the Deployment was changed to "+own.Image+" meanwhile"
		return p.write(ctx, own, "", r)
	case own.Rolled():
		r.State = controlapi.UpdateDone
		return p.write(ctx, own, "", r)
	case p.Now().Before(r.Deadline):
		return nil
	}
	r.State = controlapi.UpdateFailed
	r.Reason = fmt.Sprintf("it was not ready in time, and was rolled back: %s", p.trouble(ctx, own))
	return p.write(ctx, own, r.FromImage, r)
}

// write changes the record, and the image unless that is empty. It returns no error if another
// replica was first.
func (p Pods) write(ctx context.Context, own kube.Own, image string, r Record) error {
	r.Reason = controlapi.ClipReason(r.Reason)
	note, err := json.Marshal(r)
	if err != nil {
		return err
	}
	err = p.Cluster.SetOwn(ctx, own, image, note)
	if problem.Is(err, problem.Busy) {
		return nil
	}
	return err
}
