package policy

import (
	"fmt"
	"maps"
	"slices"
)

// nulls returns the fields that are null in a decoded policy, in their order. A null list would
// count as an absent one, which often allows more than an empty list.
func nulls(at string, value any) []string {
	switch v := value.(type) {
	case nil:
		return []string{at}
	case []any:
		var found []string
		for i, element := range v {
			found = append(found, nulls(fmt.Sprintf("%s[%d]", at, i), element)...)
		}
		return found
	case map[string]any:
		var found []string
		for _, key := range slices.Sorted(maps.Keys(v)) {
			field := key
			if at != "" {
				field = at + "." + key
			}
			found = append(found, nulls(field, v[key])...)
		}
		return found
	}
	return nil
}
