package operatorapi

import (
	"context"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// ConsolePath begins the paths of the console, beside the operator API.
const ConsolePath = "/console"

// CreateConsoleCode makes the code with which the caller's browser signs in.
var CreateConsoleCode = Call[ConsoleCodeInput, ConsoleCode]{
	Description{Method: "POST", Path: Prefix + "console/codes", ID: "create-console-code", Role: administration.RoleViewer, Command: "console",
		Summary: "Create a code with which a browser signs in to the console, once", Once: true}, createConsoleCode,
}

// ConsoleCodeInput has nothing but what every change has.
type ConsoleCodeInput struct{ Write }

// ConsoleCode signs one browser in, once.
type ConsoleCode struct {
	Code      string    `json:"code" doc:"A secret."`
	Address   string    `json:"address" doc:"Page that takes the code in its form, or after a # in its address."`
	ExpiresAt time.Time `json:"expiresAt"`
}

func createConsoleCode(ctx context.Context, a *administration.Admin, _ *ConsoleCodeInput) (ConsoleCode, error) {
	at, isVisit := ctx.Value(visitKey{}).(*visit)
	if isVisit && at.caller.Operator.Serial != "" && a.Settings().ConsoleCode != nil {
		return newConsoleCode(ctx, a, at.caller.Operator)
	}
	return ConsoleCode{}, problem.Errorf(problem.Conflict, "give --credentials FILE, as `pipeops-controlplane operator create NAME -o FILE` writes it",
		"the console is opened with an operator's credentials")
}

func newConsoleCode(ctx context.Context, a *administration.Admin, operator store.Operator) (ConsoleCode, error) {
	if a.IsDryRun() {
		return ConsoleCode{}, nil
	}
	code, expires, err := a.Settings().ConsoleCode(ctx, operator)
	return ConsoleCode{Code: code, Address: a.Settings().ConsoleURL + "/enter", ExpiresAt: expires}, err
}
