package login

import "testing"

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"certificate":"a","ca":"b"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if _, err := parse(body); err == nil && len(body) > maxAnswer {
			t.Fatal("taken though it is too large")
		}
	})
}
