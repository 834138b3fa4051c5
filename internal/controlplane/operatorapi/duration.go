package operatorapi

import (
	"fmt"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

// Duration is a length of time, in JSON as 90s, 5m or 24h.
type Duration time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%.40q is not a length of time, such as 90s, 5m or 24h", text)
	}
	*d = Duration(parsed)
	return nil
}

// Schema implements huma.SchemaProvider.
func (Duration) Schema(huma.Registry) *huma.Schema {
	most := 40
	return &huma.Schema{Type: huma.TypeString, Pattern: `^-?([0-9]+(\.[0-9]+)?(ms|us|ns|h|m|s))+$|^0$`, MaxLength: &most, Examples: []any{"24h"}}
}
