package sources

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func promotionFlags(cmd *cobra.Command, p *runnerapi.SourcePromotion) {
	cmd.Flags().StringVar(&p.From, "promote-from", "", "other source as NAME or NAMESPACE/NAME: follow the commit that it has applied, once that is healthy")
	cmd.Flags().StringVar(&p.After, "after", "", "for --promote-from: how long the other source is Ready before, such as 30m (default: at once)")
	cmd.Flags().BoolVar(&p.Approval, "approval", false, "for --promote-from: a commit waits besides until source approve allows it")
}

func promotionRows(w io.Writer, p *runnerapi.SourcePromotionStatus) {
	if p == nil {
		return
	}
	cli.Row(w, "PROMOTED", short(p.Commit), p.PromotedAt, "from "+p.From)
	if p.Message != "" {
		cli.Row(w, "AWAITS", short(p.Candidate), cli.Printable(p.Message))
	}
}
