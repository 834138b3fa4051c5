package administration

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"
)

// selectable returns what keeps labels, which an operator gives, from being written in a selector:
// no grant could name them.
func selectable(labels map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		switch {
		case len(validation.IsQualifiedName(key)) > 0:
			return invalid(labelFix+"; a key may have a DNS name and '/' before it",
				"%s=%s is not a valid Kubernetes label: the key %q is not one", key, labels[key], key)
		case len(validation.IsValidLabelValue(labels[key])) > 0:
			return invalid(labelFix+"; a value may be empty",
				"%s=%s is not a valid Kubernetes label: the value %q is not one", key, labels[key], labels[key])
		}
	}
	return nil
}

// labelFix is in place of the texts of Kubernetes, which are regular expressions.
const labelFix = "use letters, digits, '-', '_' and '.', at most 63, with a letter or a digit at both ends"
