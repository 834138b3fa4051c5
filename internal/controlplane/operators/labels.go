package operators

import (
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
			return invalid("", "%s=%s is not a valid Kubernetes label: %s", key, labels[key], strings.Join(wrong, "; "))
		}
	}
	return nil
}
