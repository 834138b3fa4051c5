package htpasswd_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/htpasswd"
)

// Of the password "secret word", as `htpasswd -nbB` and `openssl passwd -apr1` write it.
const (
	ofBcrypt = "$2a$05$J5FOUTwjxhL/6n/xzwAvLu3SL1x4q0tFF06ZaQi3.e8Bgu9z9EJpC"
	ofMD5    = "$apr1$abcdefgh$sAT51V/DnRGRtxDJCf7lm/"
)

func TestMatch(t *testing.T) {
	f, err := htpasswd.Parse([]byte("# users\nanna:" + ofBcrypt + "\r\n\nbert:" + ofMD5 + "\n"))
	require.NoError(t, err)
	for _, user := range []string{"anna", "bert"} {
		assert.True(t, f.Match(user, "secret word"), user)
		assert.False(t, f.Match(user, "secret words"), user)
		assert.False(t, f.Match(user, ""), user)
	}
	assert.False(t, f.Match("carl", "secret word"), "the decoy's password lets nobody in")
	assert.False(t, f.Match("anna", strings.Repeat("a", 1<<20)))
}

func TestParse_Refuses(t *testing.T) {
	for name, test := range map[string]struct{ file, says string }{
		"no user":         {"# none\n", "no users"},
		"no hash":         {"anna:" + ofBcrypt + "\nbert\n", "line 2 is not USER:HASH"},
		"no name":         {":" + ofBcrypt, "line 1 is not USER:HASH"},
		"plain text":      {"anna:secret word", "line 1: its hash is of neither bcrypt"},
		"SHA-1 unsalted":  {"anna:{SHA}2jmj7l5rSw0yVb/vlWAYkK/YBwk=", "line 1: its hash is of neither"},
		"half of MD5":     {"anna:$apr1$salt", "line 1: its hash is of neither"},
		"a cost of hours": {"anna:" + strings.Replace(ofBcrypt, "$05$", "$31$", 1), "line 1: its hash has the cost 31, and may have 12"},
		"too large":       {strings.Repeat("#\n", htpasswd.MaxSize), "bytes, and may have"},
		"too many":        {manyUsers(), "more than 1000 users"},
	} {
		_, err := htpasswd.Parse([]byte(test.file))
		require.ErrorContains(t, err, test.says, name)
		assert.NotContains(t, err.Error(), "secret", name)
	}
}

func manyUsers() string {
	var b strings.Builder
	for n := range 1001 {
		b.WriteString("u" + strconv.Itoa(n) + ":" + ofMD5 + "\n")
	}
	return b.String()
}

func FuzzParse(f *testing.F) {
	f.Add("anna:"+ofBcrypt+"\nbert:"+ofMD5, "anna", "secret word")
	f.Add("a:$apr1$$\nb:$1$x$", "b", "")
	f.Fuzz(func(t *testing.T, file, user, password string) {
		parsed, err := htpasswd.Parse([]byte(file))
		if err == nil && parsed.Match(user, password) {
			assert.Contains(t, file, user+":")
		}
	})
}
