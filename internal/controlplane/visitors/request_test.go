package visitors

import (
	"encoding/base64"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func sound() request {
	return request{ID: "1", Host: "shop.example.com", State: "s", Challenge: strings.Repeat("c", 43)}
}

func TestRequest_RoundTrip(t *testing.T) {
	longest := request{ID: strings.Repeat("I", 26), Host: strings.Repeat("h.", 126) + "h", State: strings.Repeat("s", maxState), Challenge: strings.Repeat("c", 43)}
	for _, want := range []request{sound(), longest} {
		note := want.note()
		assert.LessOrEqual(t, len(note), maxNote)
		got, err := parse(note)
		require.NoError(t, err)
		assert.Equal(t, want, got)
		found, ok := noteOf(url.Values{"state": {note + noteEnd + "x"}})
		assert.True(t, ok)
		assert.Equal(t, note, found)
	}
}

func TestDerived_Apart(t *testing.T) {
	values := map[string]bool{}
	for _, secret := range []string{"a", "b"} {
		for _, purpose := range []string{purposeConfirm, purposeLogin} {
			for _, note := range []string{"n", "m"} {
				values[derived(secret, purpose, note)] = true
			}
		}
	}
	assert.Len(t, values, 8)
}

// FuzzParse: a note comes from a browser. What is read is sound, and has one form.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"", sound().note(), "e30", base64.RawURLEncoding.EncodeToString([]byte(`{"i":"1","h":"a b","s":"x","c":"y"}`))} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, note string) {
		r, err := parse(note)
		if err != nil {
			return
		}
		require.NoError(t, r.check())
		again, err := parse(r.note())
		require.NoError(t, err)
		require.Equal(t, r, again)
	})
}
