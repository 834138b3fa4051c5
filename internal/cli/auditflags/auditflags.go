// Package auditflags has the flags and the table by which command lines search an audit log.
package auditflags

import (
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pipeops/pipeops-vm-agent/internal/audit"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/moment"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Filter are the flags that select calls.
type Filter struct {
	runnerapi.AuditFilter
	// After is the number after which a collector wants each record; negative for a search.
	After int64
}

// Add adds the flags of a search.
func (f *Filter) Add(cmd *cobra.Command) {
	f.After = -1
	fl := cmd.Flags()
	fl.StringVar(&f.By, "by", "", "part of the name of the Runner or operator that sent the call")
	fl.StringVar(&f.Command, "command", "", "part of the call's operationId, such as put-app")
	fl.StringVar(&f.Namespace, "namespace", "", "namespace of what the call is about")
	fl.StringVar(&f.App, "app", "", "part of the App's NAMESPACE/NAME, or of what else the call is about")
	fl.Var(checked{(*string)(&f.Outcome), "outcome", audit.CheckOutcome}, "outcome", "begun, done, refused or failed")
	fl.StringVar(&f.Text, "text", "", "part of the arguments, the message, the code, or of an ID in the record")
	fl.Var(checked{&f.Since, "time", isMoment}, "since", "only calls newer than this: a duration such as 2h or 7d, a date, or a time in RFC 3339")
	fl.Var(checked{&f.Until, "time", isMoment}, "until", "only calls older than this, written as for --since")
	fl.Int64Var(&f.Before, "before", 0, "search further: the number that the last line of an earlier search names")
	fl.IntVar(&f.Limit, "limit", audit.DefaultCalls, "number of newest calls to list")
}

// AddAfter adds the flag of a collector, which goes with --limit only.
func (f *Filter) AddAfter(cmd *cobra.Command) {
	cmd.Flags().Int64Var(&f.After, "after", -1, "list each record with a higher number instead, oldest first")
	for _, name := range []string{"by", "command", "namespace", "app", "outcome", "text", "since", "until", "before"} {
		cmd.MarkFlagsMutuallyExclusive("after", name)
	}
}

func isMoment(text string) error {
	_, err := moment.Parse(text, time.Now())
	return err
}

// checked is a flag whose text is checked at once, and sent as it is.
type checked struct {
	to    *string
	kind  string
	check func(string) error
}

var _ pflag.Value = checked{}

// Set implements pflag.Value.
func (c checked) Set(text string) error {
	err := c.check(text)
	if err == nil {
		*c.to = text
	}
	return err
}

// String implements pflag.Value.
func (c checked) String() string {
	if c.to == nil {
		return ""
	}
	return *c.to
}

// Type implements pflag.Value.
func (c checked) Type() string { return c.kind }

// Table writes calls, and where the search ended. who is the heading of what sends calls.
func Table(w io.Writer, who string, list runnerapi.AuditList) {
	cli.Row(w, "SEQ", "TIME", who, "COMMAND", "ABOUT", "OUTCOME", "CODE", cli.Wide("MS"), cli.Wide("REQUEST"), "DETAILS")
	for _, c := range list.Items {
		cli.Row(w, c.Seq, cli.Time(c.Time), c.By(), c.Command, c.About(), c.Outcome, c.Code, c.Millis, c.RequestID, details(c))
	}
	if list.Older > 0 {
		cli.Say(w, "searched %s; older ones: --before %d", cli.Count(list.Scanned, "record"), list.Older)
	}
}

// details returns what a short line says of a call.
func details(c runnerapi.AuditCall) string {
	switch call := c.KubernetesCall(); {
	case c.Broken:
		return "BROKEN CHAIN " + call
	case call != "":
		return call
	}
	return c.Message
}
