package components

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// instanceLabel is the label with the name of a release. The charts put it on their claims, and on
// the selectors of their StatefulSets, from where Kubernetes copies it to their claims.
const instanceLabel = "app.kubernetes.io/instance"

// Volume is a PersistentVolumeClaim with the data of a component.
type Volume struct{ Namespace, Name string }

// Volumes returns the volumes of a component, also of one that was removed.
func (i *Installer) Volumes(ctx context.Context, name string) ([]Volume, error) {
	c, ok := find(name)
	if !ok {
		return nil, unknown(name)
	}
	var all []Volume
	for _, chart := range c.Charts {
		list, err := i.Client.CoreV1().PersistentVolumeClaims(c.Namespace).List(ctx, metav1.ListOptions{LabelSelector: instanceLabel + "=" + chart.Name})
		if err != nil {
			return nil, translated(err, "listing the volumes of component "+name)
		}
		for n := range list.Items {
			all = append(all, Volume{c.Namespace, list.Items[n].Name})
		}
	}
	return all, nil
}

// RemoveVolume deletes a volume with its data.
func (i *Installer) RemoveVolume(ctx context.Context, v Volume) error {
	err := i.Client.CoreV1().PersistentVolumeClaims(v.Namespace).Delete(ctx, v.Name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return translated(err, "deleting volume "+v.Namespace+"/"+v.Name)
}
