package operatorapi

import (
	"context"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
)

// The calls about sessions in the console.
var (
	ListConsoleSessions = Call[struct{}, List[ConsoleSession]]{
		Description{Method: "GET", Path: Prefix + "operators/sessions", ID: "list-console-sessions", Role: administration.RoleAdmin, Command: "operator session list",
			Summary: "List operators' sessions in the console"}, listConsoleSessions,
	}
	DeleteConsoleSessions = Call[DeleteConsoleSessionsInput, SessionsEnded]{
		Description{Method: "POST", Path: Prefix + "operators/sessions/delete", ID: "delete-console-sessions", Role: administration.RoleAdmin, Command: "operator session delete",
			Summary: "End all sessions of an operator in the console"},
		func(ctx context.Context, a *administration.Admin, in *DeleteConsoleSessionsInput) (SessionsEnded, error) {
			n, err := a.Operators.EndSessions(ctx, in.Body.Operator)
			return SessionsEnded{n}, err
		},
	}
)

// ConsoleSession is an operator's session in the console.
type ConsoleSession struct {
	Operator  string    `json:"operator" doc:"Name of the operator, or openid/NAME for a person who signed in by OpenID Connect."`
	CreatedAt time.Time `json:"createdAt"`
	ExpiresAt time.Time `json:"expiresAt"`
}

// DeleteConsoleSessionsInput names an operator who is signed out everywhere.
type DeleteConsoleSessionsInput struct {
	Write
	Body DeleteConsoleSessionsBody
}

// DeleteConsoleSessionsBody names an operator who is signed out everywhere.
type DeleteConsoleSessionsBody struct {
	Operator string `json:"operator" minLength:"1" maxLength:"256" doc:"Name of the operator, or openid/NAME for a person who signs in by OpenID Connect."`
}

// SessionsEnded is how many sessions have ended.
type SessionsEnded struct {
	Ended int `json:"ended"`
}

func listConsoleSessions(ctx context.Context, a *administration.Admin, _ *struct{}) (List[ConsoleSession], error) {
	found, err := a.Operators.Sessions(ctx)
	list := make([]ConsoleSession, len(found))
	for i, s := range found {
		list[i] = ConsoleSession{s.Operator, s.CreatedAt, s.ExpiresAt}
	}
	return listOf(list, err)
}
