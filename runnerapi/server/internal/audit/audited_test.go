package audit

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// FuzzAuditArguments: whatever is sent, what is told is JSON, bounded, and has no
// text of a field that may hold a secret.
func FuzzAuditArguments(f *testing.F) {
	f.Add([]byte(`{"data":{"a":"hunter2"}}`))
	f.Add([]byte(`{"env":[{"value":"hunter2"}],"args":["hunter2"]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		told := callArguments(runnerapi.Call{}, nil, body, map[string]any{})
		if told != nil && !json.Valid(told) || len(told) > 4<<10 {
			t.Fatalf("%s", told)
		}
		var sent struct{ Data map[string]string }
		if json.Unmarshal(body, &sent) != nil {
			return
		}
		for key, value := range sent.Data {
			if len(value) > 8 && !strings.Contains(key, value) && strings.Contains(string(told), value) && strings.Count(string(body), value) == 1 {
				t.Fatalf("%q is told: %s", value, told)
			}
		}
	})
}
