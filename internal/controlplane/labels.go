package controlplane

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// selectable returns what keeps labels, which an operator gives, from being written in a selector:
// no grant could name them.
func selectable(labels map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		wrong := validation.IsQualifiedName(key)
		if len(wrong) == 0 {
			wrong = validation.IsValidLabelValue(labels[key])
		}
		if len(wrong) > 0 {
			return fmt.Errorf("%s=%s is no label as Kubernetes has them, so that no selector could name it: %s", key, labels[key], strings.Join(wrong, "; "))
		}
	}
	return nil
}
