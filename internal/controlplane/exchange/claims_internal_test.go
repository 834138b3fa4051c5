package exchange

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
)

func parsed(t testing.TB, text string) (c claims) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(text), &c.Claims))
	return c
}

// No value of a token passes for another field, for an operator, or for more than a certificate
// holds.
func TestActor_Bounds(t *testing.T) {
	for text, want := range map[string]string{
		`{}`: "oidc/sub",
		`{"project_path":"shop/web","ci_config_ref_uri":"gitlab.com/shop/web//.gitlab-ci.yml@refs/heads/main","sha":"3f2a","user_login":"bob"}`: "oidc/sub repository=shop/web workflow=gitlab.com/shop/web//.gitlab-ci.yml@refs/heads/main commit=3f2a person=bob",
		`{"workflow":"Deploy to prod","actor":"a person=root"}`:                                                                                 `oidc/sub workflow="Deploy to prod" person="a person=root"`,
		`{"actor":"\u202ebob\n","repository":["shop/web"]}`:                                                                                     `oidc/sub person="\u202ebob\n"`,
	} {
		assert.Equal(t, want, parsed(t, text).actor("sub"), text)
	}
	long := strings.Repeat("\u202e", 10_000)
	text, err := json.Marshal(map[string]string{"repository": long, "workflow": long, "sha": long, "actor": long})
	require.NoError(t, err)
	_, err = credentials.ActorExtension(parsed(t, string(text)).actor(long))
	require.NoError(t, err)
}

func TestClaims_Match(t *testing.T) {
	c := parsed(t, `{"text":"a","number":12,"yes":true,"list":["a","b",3],"object":{"a":"b"},"nested":[["a"]],"nothing":null}`)
	for name, values := range map[string][]string{"text": {"a"}, "number": {"12"}, "yes": {"true"}, "list": {"a", "b", "3"}} {
		for _, value := range values {
			require.NoError(t, c.match(map[string]string{name: value}), name)
		}
	}
	for name, value := range map[string]string{
		"text": "A", "number": "12.0", "yes": "True", "list": "a,b", "object": "b", "nested": "a", "nothing": "null", "missing": "x",
	} {
		require.ErrorContains(t, c.match(map[string]string{name: value}), "the claim "+name, name)
	}
	require.ErrorContains(t, c.match(map[string]string{"text": "a", "yes": "false"}), "yes", "all of them")
}
