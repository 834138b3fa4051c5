package components

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// labelLength is what fits into a label of 63 characters and is still unique.
const labelLength = 40

// digestOf identifies a chart and its values, in a form that a label can hold.
func digestOf(chart Chart, values map[string]any) string {
	text, err := json.Marshal(struct {
		Chart  Chart
		Values map[string]any
	}{chart, values})
	if err != nil {
		panic(err) // values come from JSON or YAML
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])[:labelLength]
}
