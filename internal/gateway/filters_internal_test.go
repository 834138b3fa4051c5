package gateway

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// The table is that of HTTPPathModifier in the Gateway API.
func TestPathChange_Prefix(t *testing.T) {
	for _, c := range []struct{ path, prefix, value, want string }{
		{"/foo/bar", "/foo", "/xyz", "/xyz/bar"}, {"/foo/bar", "/foo", "/xyz/", "/xyz/bar"}, {"/foo/bar", "/foo/", "/xyz", "/xyz/bar"},
		{"/foo/bar", "/foo/", "/xyz/", "/xyz/bar"}, {"/foo", "/foo", "/xyz", "/xyz"}, {"/foo/", "/foo", "/xyz", "/xyz/"},
		{"/foo/bar", "/foo", "", "/bar"}, {"/foo/", "/foo", "", "/"}, {"/foo", "/foo", "", "/"}, {"/foo/", "/foo", "/", "/"}, {"/foo", "/foo", "/", "/"},
		{"/f%6Fo/b%2Fr", "/foo", "/xyz", "/xyz/b%2Fr"}, {"/foo//evil", "/foo", "/", "/evil"}, {"/foo//x", "/foo", "/xyz", "/xyz//x"},
		{"/foo/../bar", "/foo", "/xyz", ""}, {"/foo/%2e%2e/bar", "/foo", "/xyz", ""}, {"/foo/..;/bar", "/foo", "/xyz", ""}, {"/foo/a/../bar", "/foo", "/xyz", "/xyz/a/../bar"},
		{"*", "/", "/xyz", "*"},
	} {
		got, ok := (&PathChange{Value: c.value, Prefix: true}).apply(&Route{Path: c.prefix}, c.path)
		assert.Equal(t, c.want != "", ok, "%+v", c)
		if ok {
			assert.Equal(t, c.want, got, "%+v", c)
		}
	}
}

// FuzzPathChange: no path leads out of what replaces its prefix, and none to another host.
func FuzzPathChange(f *testing.F) {
	for _, s := range []string{"/foo/bar", "/foo//evil.example.com", "/foo/%2e%2e/x", `/foo/..\x`, "/foo/..;x/%252e%252e/", "/%66oo", "/foo/%"} {
		f.Add(s, "/xyz")
		f.Add(s, "/")
	}
	f.Fuzz(func(t *testing.T, raw, value string) {
		if !strings.HasPrefix(raw, "/foo") || !strings.HasPrefix(value, "/") || unusual(value) || len(raw) > 1<<10 {
			return
		}
		got, ok := (&PathChange{Value: value, Prefix: true}).apply(&Route{Path: "/foo"}, raw)
		if !ok {
			return
		}
		if !strings.HasPrefix(got, "/") || trimmed(value) == "" && strings.HasPrefix(got, "//") {
			t.Fatalf("%q by %q", got, raw)
		}
		if rest := after(raw, len("/foo")); rest != "" && rest[0] != '/' {
			return // no route has led here
		}
		all, _ := readings(got, maxReadings)
		for _, read := range all {
			if !hasPrefix(read, value) {
				t.Fatalf("%q is read as %q", got, read)
			}
		}
	})
}
