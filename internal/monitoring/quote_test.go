package monitoring_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/monitoring"
)

// FuzzQuoted holds a text to what the lexers of PromQL and LogQL do with it. Both read Go's
// strings: up to the first quote without a backslash, on one line.
func FuzzQuoted(f *testing.F) {
	for _, text := range []string{"", `"`, `\`, `\"`, "`", "'", `"} or vector(1) #`, "a\nb", "\x00\xff", "é\u2028"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		quoted := monitoring.Quoted(text)
		read, err := strconv.Unquote(quoted)
		require.NoError(t, err)
		assert.Equal(t, text, read)
		assert.NotContains(t, quoted, "\n")
		inside := strings.NewReplacer(`\\`, "", `\"`, "").Replace(quoted[1 : len(quoted)-1])
		assert.NotContains(t, inside, `"`, "the string ends where it is to end")
	})
}
