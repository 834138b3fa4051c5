package decode

import "strings"

// Items returns the items of a list of Kubernetes objects, such as a List or a ConfigMapList, and
// whether the object is one. As kubectl and Helm have it, every object with the field items is a
// list, and an item without kind and apiVersion has those of the list's name
// (unstructured.UnstructuredJSONScheme).
func Items(object map[string]any) (items []any, isList bool) {
	items, isList = object["items"].([]any)
	kind, _ := object["kind"].(string)
	for _, item := range items {
		if fields, ok := item.(map[string]any); ok && fields["kind"] == nil && fields["apiVersion"] == nil && kind != "List" {
			fields["kind"], fields["apiVersion"] = strings.TrimSuffix(kind, "List"), object["apiVersion"]
		}
	}
	return items, isList
}
