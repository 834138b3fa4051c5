package config

import (
	"bytes"
	"fmt"
	"strings"
)

// exampleColumns is where the comments of Example wrap.
const exampleColumns = 98

const exampleHeader = `# Every setting of the agent, with its default, for ` + "`pipeops-agent run --config FILE`" + `.
# Remove the # before those that you set. Flags and environment variables count more.
# Made from agent/config: go generate ./docs
`

// Example returns a file of all settings, commented out: deployments/config.yaml.
func Example() []byte {
	out := bytes.NewBufferString(exampleHeader)
	for _, s := range settings {
		value := s.def
		if value == "" {
			value = `""`
		}
		fmt.Fprintf(out, "\n%s#%s: %s\n", commented(strings.ToUpper(s.usage[:1])+s.usage[1:]), s.key, value)
	}
	return out.Bytes()
}

// commented returns a text as lines of a comment.
func commented(text string) string {
	var out strings.Builder
	line := "#"
	for _, word := range strings.Fields(text) {
		if len(line)+1+len(word) > exampleColumns {
			out.WriteString(line + "\n")
			line = "#"
		}
		line += " " + word
	}
	return out.String() + line + ".\n"
}
