package releases

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSet_HelmTypes: a tag such as 1.10 stays text, and a long ID keeps all its digits.
func TestSet_HelmTypes(t *testing.T) {
	for text, want := range map[string]any{
		"1.10": "1.10", "1e3": "1e3", "007": "007", "+1": "+1", "0": int64(0), "-3": int64(-3), "1234567": int64(1234567),
		"9223372036854775807": int64(9223372036854775807), "9223372036854775808": "9223372036854775808",
		"true": true, "False": false, "null": nil, "": "", "[1]": "[1]", `"1"`: `"1"`,
	} {
		values := map[string]any{}
		require.NoError(t, set(values, "a.b="+text))
		assert.Equal(t, map[string]any{"a": map[string]any{"b": want}}, values, text)
	}
}
