package console

import (
	"context"
	"net/http"
	"net/url"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/web"
)

const announcementsPath = operatorapi.ConsolePath + "/announcements"

// lettersShown is how many dead letters a page shows.
const lettersShown = 200

// lettersData is what the page Announcements shows.
type lettersData struct {
	operatorapi.DeadLetters
	Without string         // why the control plane keeps no dead letters; empty if it does
	Unread  *problem.Error // why they could not be read
}

// withoutBroker says what a control plane without a broker lacks.
const withoutBroker = "This control plane sends no announcements. Start `pipeops-controlplane serve` with " +
	"`--broker-url-file FILE`, which has the URL of a RabbitMQ."

func (p *controlPlanePages) announcements(w http.ResponseWriter, r *http.Request) error {
	return show(p.site, w, r, "announcements", page(r, "Announcements", announcementsPath, ""), func(ctx context.Context) (data lettersData, err error) {
		if !p.opts.Broker {
			data.Without = withoutBroker
			return data, nil // the API would refuse the call
		}
		data.DeadLetters, err = operatorapi.ListDeadLetters.Do(ctx, p.opts.API, operatorapi.DeadLettersInput{Limit: lettersShown})
		if err != nil {
			data.Unread = web.ProblemOf(err)
		}
		return data, nil
	})
}

// letterChange asks about one dead letter, which the query names, or about all.
func letterChange(call, verb, one, all, button, after string, danger bool, do func(context.Context, operatorapi.Target, operatorapi.ChosenInput) error) change {
	return change{
		call: call, title: button, page: announcementsPath,
		ask: func(_ string, query url.Values) web.Question {
			id := query.Get("id")
			q := web.Question{Text: all, Button: button, Danger: danger, Command: program + " dead-letter " + verb + " --all", Back: announcementsPath, BackText: "Announcements"}
			if id != "" {
				q.Text, q.Command, q.Hidden = one, web.CommandLine(program+" dead-letter "+verb, id), []web.Hidden{{Name: "id", Value: id}}
			}
			return q
		},
		do: func(ctx context.Context, t operatorapi.Target, f form) (outcome, error) {
			chosen := operatorapi.ChosenBody{All: f.text("id") == ""}
			if !chosen.All {
				chosen.IDs = []string{f.text("id")}
			}
			return outcome{to: announcementsPath, done: after}, do(ctx, t, operatorapi.ChosenInput{Write: f.write(), Body: chosen})
		},
	}
}

var announcementChanges = map[string]change{
	"/announcements/requeue": letterChange(operatorapi.RequeueDeadLetters.ID, "requeue",
		"The announcement is sent to its Runner again.", "All of them are sent to their Runners again.", "Send again", "requeue", false,
		func(ctx context.Context, t operatorapi.Target, in operatorapi.ChosenInput) error {
			result, err := operatorapi.RequeueDeadLetters.Do(ctx, t, in)
			for id, why := range result.Failed {
				return problem.Errorf(problem.Conflict, "try the others again once that is fixed", "%d were sent; announcement %s stays: %s", len(result.Sent), id, why)
			}
			return err
		}),
	"/announcements/drop": letterChange(operatorapi.DeleteDeadLetters.ID, "delete",
		"The announcement is gone for good. Its Runner learns of the change by its next snapshot.",
		"All of them are gone for good. Their Runners learn of the changes by their next snapshots.", "Drop", "drop", true,
		func(ctx context.Context, t operatorapi.Target, in operatorapi.ChosenInput) error {
			_, err := operatorapi.DeleteDeadLetters.Do(ctx, t, in)
			return err
		}),
}
