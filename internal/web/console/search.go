package console

import (
	"context"
	"net/http"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/web"
)

const searchPath = operatorapi.ConsolePath + "/search"

// searchData is what a search finds.
type searchData struct {
	Find string
	operatorapi.SearchResult
	Pages []web.Link
}

// None reports whether a search found nothing.
func (d searchData) None() bool { return len(d.Agents)+len(d.Apps)+len(d.Hosts)+len(d.Pages) == 0 }

func (p *fleetPages) search(w http.ResponseWriter, r *http.Request) error {
	data := searchData{Find: strings.TrimSpace(r.URL.Query().Get("find"))}
	may := visitor(r.Context()).may
	return show(p.site, w, r, "search", page(r, "Search", "/console/", ""), func(ctx context.Context) (searchData, error) {
		if data.Find == "" {
			return data, nil
		}
		for _, link := range nav {
			if (link.Needs == "" || may(link.Needs)) && strings.Contains(strings.ToLower(link.Text), strings.ToLower(data.Find)) {
				data.Pages = append(data.Pages, link)
			}
		}
		var err error
		data.SearchResult, err = operatorapi.Search.Do(ctx, p.opts.API, operatorapi.SearchInput{Query: data.Find})
		return data, err
	})
}
