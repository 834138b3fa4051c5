package console

import (
	"context"
	"net/http"
	"net/url"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/web"
)

const releasesPath = operatorapi.ConsolePath + "/releases"

func (p *controlPlanePages) releases(w http.ResponseWriter, r *http.Request) error {
	return show(p.site, w, r, "releases", page(r, "Releases", releasesPath, ""), func(ctx context.Context) (web.Rows[administration.Offered], error) {
		list, err := operatorapi.ListReleases.Do(ctx, p.opts.API, struct{}{})
		return web.Paged(list.Items, r.URL.Query()), err
	})
}

var releaseChanges = map[string]change{
	"/releases/{name}/withdraw": {
		call: operatorapi.DeleteOffer.ID, title: "Withdraw offer {name}", page: releasesPath,
		ask: func(name string, _ url.Values) web.Question {
			return web.Question{
				Text:   "Agents that have not begun the update do not get it. Those that have it keep it.",
				Button: "Withdraw the offer", Danger: true, Command: web.CommandLine(program+" offer delete", name), Back: releasesPath, BackText: "Releases",
			}
		},
		do: func(ctx context.Context, t operatorapi.Target, f form) (outcome, error) {
			_, err := operatorapi.DeleteOffer.Do(ctx, t, operatorapi.WithdrawInput{Write: f.write(), Release: f.name})
			return outcome{to: releasesPath, done: "withdraw"}, err
		},
	},
}
