package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/traffic"
)

const trafficPrefix = "traffic-"

// TrafficStore keeps the figures of public requests as ControllerRevisions in the agent's
// namespace, one for each process of the agent.
type TrafficStore struct{ k *Client }

var _ traffic.Store = TrafficStore{}

// TrafficStore returns the store of figures in the agent's namespace.
func (k *Client) TrafficStore() TrafficStore { return TrafficStore{k} }

func trafficLabels() map[string]string {
	return map[string]string{objectmeta.ManagedBy: objectmeta.ManagedByAgent, objectmeta.Operation: "traffic"}
}

func (s TrafficStore) meta(process string, number int64) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: s.k.opts.Namespace, Name: trafficPrefix + process + "-" + strconv.FormatInt(number, 10), Labels: trafficLabels()}
}

// trafficData is the content of an object; JSON has the figures as base64.
type trafficData struct {
	Figures []byte `json:"figures"`
}

// Put implements traffic.Store.
func (s TrafficStore) Put(ctx context.Context, share traffic.Share) error {
	raw, err := json.Marshal(trafficData{share.Data})
	if err != nil {
		return err
	}
	r := &appsv1.ControllerRevision{ObjectMeta: s.meta(share.Process, share.Number), Revision: share.Number, Data: runtime.RawExtension{Raw: raw}}
	err = s.k.client.Create(ctx, r, client.FieldOwner(objectmeta.FieldManager))
	if apierrors.IsAlreadyExists(err) { // the answer to an earlier try was lost
		return nil
	}
	return err
}

// List implements traffic.Store.
func (s TrafficStore) List(ctx context.Context) (shares []traffic.Share, err error) {
	list := &appsv1.ControllerRevisionList{}
	err = s.k.pages(ctx, list, func(client.ObjectList) error {
		for i := range list.Items {
			share, err := shareIn(&list.Items[i])
			if err != nil {
				continue // made by another client
			}
			shares = append(shares, share)
		}
		return nil
	}, client.InNamespace(s.k.opts.Namespace), client.MatchingLabels(trafficLabels()))
	return shares, err
}

func shareIn(r *appsv1.ControllerRevision) (traffic.Share, error) {
	rest, ours := strings.CutPrefix(r.Name, trafficPrefix)
	process, text, both := strings.Cut(rest, "-")
	number, err := strconv.ParseInt(text, 10, 64)
	if !ours || !both || err != nil || len(r.Data.Raw) > 2*traffic.MaxShare {
		return traffic.Share{}, fmt.Errorf("ControllerRevision %s has no figures", r.Name)
	}
	var data trafficData
	if err := json.Unmarshal(r.Data.Raw, &data); err != nil {
		return traffic.Share{}, fmt.Errorf("ControllerRevision %s: %w", r.Name, err)
	}
	return traffic.Share{Process: process, Number: number, At: r.CreationTimestamp.Time, Data: data.Figures}, nil
}

// Delete implements traffic.Store.
func (s TrafficStore) Delete(ctx context.Context, process string, number int64) error {
	return client.IgnoreNotFound(s.k.client.Delete(ctx, &appsv1.ControllerRevision{ObjectMeta: s.meta(process, number)}))
}
