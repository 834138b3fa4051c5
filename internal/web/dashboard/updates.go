package dashboard

import (
	"context"
	"net/http"

	"github.com/pipeops/pipeops-vm-agent/agent/update"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

type updatesData struct {
	Agent   agentState
	Record  update.Record
	Problem *problem.Error
	Program string
}

func (d *clusterPages) updates() view[updatesData] {
	return view[updatesData]{
		site: d.site, name: "updates", page: titled("Updates", "/updates"),
		read:  func(*http.Request) func(context.Context) (updatesData, error) { return d.readUpdates },
		watch: func(*http.Request) []watched { return nil },
	}
}

func (d *clusterPages) readUpdates(ctx context.Context) (updatesData, error) {
	data := updatesData{Agent: d.agent(ctx), Program: d.opts.Version}
	var err error
	if d.opts.Updates != nil {
		data.Record, err = d.opts.Updates(ctx)
	}
	data.Problem = unread(err, "reading the last update")
	return data, nil
}
