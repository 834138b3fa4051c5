package manifests

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/pipeops/pipeops-vm-agent/internal/denylist"
	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// An inventory is a ConfigMap beside the set's objects. It lists the objects, without their
// content. It is written before the objects, so it lists everything that the agent made, however
// that ended.
const (
	inventoryPrefix = denylist.Inventory
	inventoryLabel  = "pipeops.io/inventory" // the set's name
	inventoryBy     = "pipeops-set"          // managed-by: a value that is not the agent's for the ConfigMap calls
	inventoryData   = "objects"
	appliedAt       = "pipeops.io/applied-at"
	completed       = "pipeops.io/complete"

	// maxEntries and maxInventory keep an inventory below the 1 MiB that a ConfigMap can hold.
	// Entries have 60 to 100 bytes, and objects that were not pruned stay.
	maxEntries   = 10_000
	maxInventory = 960 << 10 // bytes
)

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// inventory is what a set holds.
type inventory struct {
	set      Set
	entries  []Ref
	complete bool
	at       time.Time
	by       string
	version  string // resourceVersion; empty if it does not exist yet
}

// readInventory reads a set's inventory; a missing one is empty.
func (c *api) readInventory(ctx context.Context, set Set) (inventory, error) {
	cm, err := c.objects.Resource(configMaps).Namespace(set.Namespace).Get(ctx, inventoryPrefix+set.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return inventory{set: set}, nil
	}
	if err != nil {
		return inventory{}, kubeproblem.From(err, "reading the inventory of "+set.String())
	}
	return inventoryOf(cm)
}

func inventoryOf(cm *unstructured.Unstructured) (inventory, error) {
	name := strings.TrimPrefix(cm.GetName(), inventoryPrefix)
	inv := inventory{set: Set{Namespace: cm.GetNamespace(), Name: name}, version: cm.GetResourceVersion()}
	if cm.GetLabels()[objectmeta.ManagedBy] != inventoryBy || cm.GetLabels()[inventoryLabel] != name {
		return inv, problem.Errorf(problem.Conflict, "choose another name for the set, or rename the ConfigMap",
			"ConfigMap %s/%s has the name of the set's inventory and is none", cm.GetNamespace(), cm.GetName())
	}
	notes := cm.GetAnnotations()
	inv.complete, inv.by = notes[completed] == "true", notes[objectmeta.ChangedBy]
	inv.at, _ = time.Parse(time.RFC3339, notes[appliedAt])
	var err error
	inv.entries, err = parseEntries(nested(cm, "data", inventoryData))
	return inv, err
}

// parseEntries parses lines of API version, kind, namespace or -, and name.
func parseEntries(text string) (entries []Ref, err error) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) != 4 {
			return nil, problem.Errorf(problem.Conflict, "have the owner of the cluster delete the ConfigMap: its objects stay, and belong to no set then",
				"the set's inventory was changed by another client and cannot be read")
		}
		r := Ref{APIVersion: fields[0], Kind: fields[1], Namespace: fields[2], Name: fields[3]}
		if r.Namespace == "-" {
			r.Namespace = ""
		}
		entries = append(entries, r)
	}
	return entries, nil
}

func formatEntries(entries []Ref) string {
	var text strings.Builder
	for _, r := range entries {
		namespace := cmp.Or(r.Namespace, "-")
		fmt.Fprintf(&text, "%s %s %s %s\n", r.APIVersion, r.Kind, namespace, r.Name)
	}
	return text.String()
}

// fits refuses entries that do not fit into a ConfigMap.
func fits(entries []Ref) error {
	if len(entries) > maxEntries || len(formatEntries(entries)) > maxInventory {
		return problem.Errorf(problem.TooLarge, "apply it as several sets, and let prune take what has left this one",
			"the set would hold %d objects, with those that left it and were not pruned; an inventory holds %d, and %d bytes of names",
			len(entries), maxEntries, maxInventory)
	}
	return nil
}

// write stores an inventory, unless another client has changed it since it was read.
func (c *api) write(ctx context.Context, inv *inventory) error {
	cm := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{inventoryData: formatEntries(inv.entries)},
	}}
	cm.SetNamespace(inv.set.Namespace)
	cm.SetName(inventoryPrefix + inv.set.Name)
	cm.SetLabels(map[string]string{objectmeta.ManagedBy: inventoryBy, inventoryLabel: inv.set.Name})
	notes := map[string]string{appliedAt: inv.at.UTC().Format(time.RFC3339), completed: fmt.Sprint(inv.complete)}
	if inv.by != "" {
		notes[objectmeta.ChangedBy] = inv.by
	}
	cm.SetAnnotations(notes)
	cm.SetResourceVersion(inv.version)
	in := c.objects.Resource(configMaps).Namespace(inv.set.Namespace)
	var kept *unstructured.Unstructured
	var err error
	if inv.version == "" {
		kept, err = in.Create(ctx, cm, metav1.CreateOptions{FieldManager: objectmeta.FieldManager})
	} else {
		kept, err = in.Update(ctx, cm, metav1.UpdateOptions{FieldManager: objectmeta.FieldManager})
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
		return busySet(inv.set)
	}
	if err != nil {
		return kubeproblem.From(err, "writing the inventory of "+inv.set.String())
	}
	inv.version = kept.GetResourceVersion()
	return nil
}

func busySet(set Set) error {
	return problem.Errorf(problem.Busy, "wait until it is done, and send this again", "set %s is being applied or deleted by another call", set)
}

// drop deletes an inventory that is empty.
func (c *api) drop(ctx context.Context, inv inventory) error {
	err := c.objects.Resource(configMaps).Namespace(inv.set.Namespace).Delete(ctx, inventoryPrefix+inv.set.Name,
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &inv.version}})
	if apierrors.IsConflict(err) {
		return busySet(inv.set)
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return kubeproblem.From(err, "deleting the inventory of "+inv.set.String())
}
