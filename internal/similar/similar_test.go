package similar

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestNearest(t *testing.T) {
	fields := []string{"args", "image", "replicas", "resources"}
	for asked, want := range map[string]string{
		"imgae": "image", "replica": "replicas", "Image": "image", "nothing": "", "ax": "", "": "", strings.Repeat("image", 100): "",
	} {
		assert.Equal(t, want, Nearest(asked, fields), asked)
	}
	assert.Empty(t, Nearest("image", nil))
	assert.Equal(t, []string{"resources", "replicas"}, Sorted("resource", []string{"replicas", "resources"}))
}

func TestDistance(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		n    int
	}{{"", "", 0}, {"shop", "shop", 0}, {"shpo", "shop", 2}, {"sho", "shop", 1}, {"", "abc", 3}, {"kitten", "sitting", 3}} {
		assert.Equal(t, tc.n, distance(tc.a, tc.b), "%q %q", tc.a, tc.b)
		assert.Equal(t, tc.n, distance(tc.b, tc.a), "%q %q", tc.b, tc.a)
	}
}
