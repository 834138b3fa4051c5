package dashboard

import (
	"context"
	"net/http"

	"github.com/pipeops/pipeops-vm-agent/internal/components"
)

func (d *clusterPages) components() view[[]componentRow] {
	return view[[]componentRow]{
		site: d.site, name: "components", page: titled("Components", "/components"),
		read: func(*http.Request) func(context.Context) ([]componentRow, error) { return d.readComponents },
	}
}

func (d *clusterPages) readComponents(ctx context.Context) ([]componentRow, error) {
	all, err := d.opts.Components(ctx)
	if err != nil {
		return nil, unread(err, "reading the components")
	}
	var rows []componentRow
	for _, s := range all {
		rows = append(rows, componentRows(s)...)
	}
	return rows, nil
}

type componentRow struct {
	components.Status
	Is, Release, Version, Newest, Why, Fix string
}

// componentRows returns a row for each release of a component, or one that says that there is none.
func componentRows(s components.Status) (rows []componentRow) {
	for _, r := range s.Releases {
		row := componentRow{Status: s, Is: r.Status, Release: r.Namespace + "/" + r.Name, Version: r.Version, Newest: r.Newest}
		if r.Status == components.Deployed && s.State != nil {
			row.Is = "ready"
			if !s.State.Ready {
				row.Is, row.Why, row.Fix = "not ready", s.State.Workload+": "+s.State.Message, s.State.Fix
			}
		}
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		row := componentRow{Status: s, Is: "absent"}
		if s.Present != "" {
			row.Is, row.Why = "by others", s.Present
		}
		rows = append(rows, row)
	}
	return rows
}
