package manifests

import (
	"fmt"
	"strings"

	"github.com/rogpeppe/go-internal/diff" // Go's own: unified, and n log n where others are quadratic
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pipeops/pipeops-vm-agent/internal/decode"
)

// maxDiff bounds one object's diff, in bytes.
const maxDiff = 32 << 10

// diffOf returns what changes about an object, as a unified diff of YAML without what the cluster
// keeps for itself.
func diffOf(ref Ref, live, would *unstructured.Unstructured) string {
	before, after := told(live), told(would)
	if kindOf(ref) == kindSecret {
		mask(before, after)
	}
	text := string(diff.Diff(ref.String()+" (live)", yamlOf(before), ref.String()+" (applied)", yamlOf(after)))
	if _, rest, found := strings.Cut(text, "\n"); found { // the line "diff LIVE APPLIED"
		text = rest
	}
	if len(text) > maxDiff {
		text = strings.ToValidUTF8(text[:maxDiff], "") + fmt.Sprintf("\n… and %d bytes more\n", len(text)-maxDiff)
	}
	return text
}

func yamlOf(object map[string]any) []byte {
	if object == nil {
		return nil
	}
	text, err := decode.ToYAML(object)
	if err != nil { // it came from JSON
		return nil
	}
	return text
}

// told returns the parts of an object that a diff shows; nil for a missing object.
func told(u *unstructured.Unstructured) map[string]any {
	if u == nil {
		return nil
	}
	c := u.DeepCopy().Object
	for _, field := range []string{"managedFields", "resourceVersion", "uid", "creationTimestamp", "generation"} {
		unstructured.RemoveNestedField(c, "metadata", field)
	}
	delete(c, "status")
	return c
}

// mask replaces the values of a Secret, so that what changes can still be seen, and not
// to what. kubectl's note of what was applied has values too.
func mask(before, after map[string]any) {
	for _, tree := range [][]string{{"data"}, {"stringData"}, {"metadata", "annotations"}} {
		a, b := tableAt(before, tree), tableAt(after, tree)
		for key, value := range b {
			if old, had := a[key]; had && old == value {
				a[key], b[key] = "***", "***"
			} else {
				b[key] = "*** (new value)"
			}
		}
		for key := range a {
			if a[key] != "***" {
				a[key] = "*** (old value)"
			}
		}
	}
}

// tableAt returns a mapping within an object; writing to it changes the object.
func tableAt(object map[string]any, path []string) map[string]any {
	var at any = object
	for _, key := range path {
		m, _ := at.(map[string]any)
		at = m[key]
	}
	m, _ := at.(map[string]any)
	return m
}
