package sources

import (
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// sourceReport is the flags of a source that reports to a forge.
type sourceReport struct{ report runnerapi.SourceReport }

func (r *sourceReport) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar((*string)(&r.report.Forge), "report", "", "report the state of each commit to the forge of the repository: github, gitlab or gitea")
	f.StringVar(&r.report.Credentials, "report-credentials", "", "with --report: Secret with url, and token or the key of a GitHub App")
	f.StringVar(&r.report.API, "report-api", "", "with --report: address of the forge's API (default: by the host of --url)")
	f.StringVar(&r.report.Environment, "environment", "", "with --report github or gitlab: also report deployments to this environment")
	f.StringVar(&r.report.EnvironmentURL, "environment-url", "", "with --report: address of what is deployed (default: the App's first public address)")
}

// into puts the report into a spec, where one is asked for.
func (r *sourceReport) into(spec *runnerapi.SourceSpec) error {
	switch {
	case r.report.Forge != "":
		spec.Report = &r.report
	case r.report != runnerapi.SourceReport{}:
		return errors.New("--report is needed: github, gitlab or gitea")
	}
	return nil
}

func reportRows(w io.Writer, r *runnerapi.SourceReportStatus) {
	if r == nil {
		return
	}
	if r.State != "" {
		cli.Row(w, "REPORTED", r.State, short(r.Commit), "at "+r.SentAt)
	}
	errorRows(w, "NOT REPORTED", r.Error)
}
