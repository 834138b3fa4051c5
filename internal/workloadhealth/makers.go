package workloadhealth

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/diagnose"
)

// missingSources asks for the Secrets and ConfigMaps that pods wait for: the kubelet looks seldom,
// so they may be there by now. For Secrets it asks why an operator does not make them. Operators
// say it in events too, so the agent needs no right to their kinds, which the cluster may lack.
// Only an object of the Secret's own name is found, which is the default of most operators.
func (g Gatherer) missingSources(ctx context.Context, ev *diagnose.Evidence) error {
	ev.There, ev.Makers = map[diagnose.Source]bool{}, map[string]diagnose.Maker{}
	for _, s := range diagnose.MissingSources(ev) {
		there, err := g.exists(ctx, s)
		if err != nil {
			return err
		}
		ev.There[s] = there
		if there || s.Kind != "secret" {
			continue
		}
		maker, err := g.warning(ctx, s.Name, func(of corev1.ObjectReference) bool { return diagnose.Makes(of.APIVersion, of.Kind) })
		if err != nil {
			return err
		}
		if maker.Kind != "" {
			ev.Makers[s.Name] = maker
		}
	}
	return nil
}

// exists reads no content. What the agent may not read counts as missing, as the kubelet says.
func (g Gatherer) exists(ctx context.Context, s diagnose.Source) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	kind := "ConfigMap"
	if s.Kind == "secret" {
		kind = "Secret"
	}
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
	err := g.Live.Get(ctx, client.ObjectKey{Namespace: g.Namespace, Name: s.Name}, o)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for %s %s: %w", s.Kind, s.Name, err)
	}
	return true, nil
}

// warning returns the newest warning about an object of a name that is meant.
func (g Gatherer) warning(ctx context.Context, name string, meant func(corev1.ObjectReference) bool) (maker diagnose.Maker, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	of := client.MatchingFields{"involvedObject.name": name}
	warnings := client.MatchingFields{"involvedObject.name": name, "type": corev1.EventTypeWarning}
	var list corev1.EventList
	if err := g.Live.List(ctx, &list, client.InNamespace(g.Namespace), client.Limit(maxEvents), warnings); err != nil {
		return maker, fmt.Errorf("read the events about %s: %w", name, err)
	}
	g.listened(of, list.ResourceVersion, anyReason) // its creation comes without a warning
	var newest time.Time
	for i := range list.Items {
		e := &list.Items[i]
		if at := lastSeen(e); meant(e.InvolvedObject) && !at.Before(newest) {
			newest, maker = at, diagnose.Maker{Kind: e.InvolvedObject.Kind, Name: e.InvolvedObject.Name, Message: e.Message}
		}
	}
	return maker, nil
}

// anyReason is for events whose reasons are another project's.
var anyReason []string
