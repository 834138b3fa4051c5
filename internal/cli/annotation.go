package cli

import (
	"io"
	"os"
	"regexp"
	"strings"
)

// onActions is "true" on a runner of GitHub Actions.
const onActions = "GITHUB_ACTIONS"

// inFile is how errors begin that are about a line of a file.
var inFile = regexp.MustCompile(`^(?:field: )?([^\s:]+): line (\d+)(?:, column \d+)?: (.+)$`)

// annotate prints the failure as GitHub Actions' workflow commands, so that it stands at the line
// of the file in a pull request, if there is one:
// https://github.com/actions/toolkit/blob/main/packages/core/src/command.ts
func (f Failure) annotate(w io.Writer) {
	if os.Getenv(onActions) != "true" {
		return
	}
	fix := ""
	if f.Fix != "" {
		fix = "\nfix: " + f.Fix
	}
	located := false
	for _, text := range append([]string{f.What}, f.Details...) {
		if at := inFile.FindStringSubmatch(text); at != nil {
			Say(w, "::error file=%s,line=%s::%s", commandProperty.Replace(at[1]), at[2], commandData.Replace(at[3]+fix))
			located = true
		}
	}
	if !located {
		Say(w, "::error::%s", commandData.Replace(strings.Join(append([]string{f.What}, f.Details...), "\n")+fix))
	}
}

// What values of workflow commands are escaped by, as in @actions/core.
var (
	commandData     = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	commandProperty = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)
