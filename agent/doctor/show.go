package doctor

import (
	"fmt"
	"io"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
)

// Table prints one line for each finding, with the fix beside a failure.
func (r Report) Table(w io.Writer) {
	cli.Row(w, "STATUS", "CHECK", "FOUND")
	for _, f := range r.Findings {
		found := f.Detail
		if f.Fix != "" {
			found = fmt.Sprintf("%s (fix: %s)", f.Detail, f.Fix)
		}
		cli.Row(w, f.Status, f.Check, found)
	}
}
