package operatorapi

import (
	"cmp"
	"context"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/audit"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// The calls about operators and what they did.
var (
	ListOperators = Call[struct{}, List[store.Operator]]{
		Description{Method: "GET", Path: Prefix + "operators", ID: "list-operators", Role: administration.RoleAdmin, Command: "operator list",
			Summary: "List operators, including revoked ones"},
		func(ctx context.Context, a *administration.Admin, _ *struct{}) (List[store.Operator], error) {
			return listOf(a.Operators.List(ctx))
		},
	}
	CreateOperator = Call[CreateOperatorInput, administration.Credentials]{
		Description{Method: "POST", Path: Prefix + "operators", ID: "create-operator", Role: administration.RoleAdmin, Command: "operator create",
			Summary: "Create an operator and its credentials", Once: true}, createOperator,
	}
	RevokeOperator = Call[OperatorInput, Done]{
		Description{Method: "POST", Path: Prefix + "operators/{operator}/revoke", ID: "revoke-operator", Role: administration.RoleAdmin, Command: "operator revoke",
			Summary: "Revoke an operator's certificate"},
		func(ctx context.Context, a *administration.Admin, in *OperatorInput) (Done, error) {
			return Done{}, a.Operators.Revoke(ctx, in.Operator)
		},
	}
	ListOperatorRunners = Call[struct{}, List[store.ActingOperator]]{
		Description{Method: "GET", Path: Prefix + "operators/runners", ID: "list-operator-runners", Role: administration.RoleAdmin, Command: "operator runner list",
			Summary: "List the operators who act as Runners in the console"},
		func(ctx context.Context, a *administration.Admin, _ *struct{}) (List[store.ActingOperator], error) {
			return listOf(a.Operators.Acting(ctx))
		},
	}
	SetOperatorRunner = Call[SetOperatorRunnerInput, Done]{
		Description{Method: "POST", Path: Prefix + "operators/runners", ID: "set-operator-runner", Role: administration.RoleAdmin, Command: "operator runner set",
			Summary: "Have an operator act as a Runner in the console"},
		func(ctx context.Context, a *administration.Admin, in *SetOperatorRunnerInput) (Done, error) {
			return Done{}, a.Operators.ActAs(ctx, in.Body.Operator, in.Body.Runner)
		},
	}
	DeleteOperatorRunner = Call[DeleteOperatorRunnerInput, Done]{
		Description{Method: "POST", Path: Prefix + "operators/runners/delete", ID: "delete-operator-runner", Role: administration.RoleAdmin, Command: "operator runner delete",
			Summary: "Have an operator act as no Runner"},
		func(ctx context.Context, a *administration.Admin, in *DeleteOperatorRunnerInput) (Done, error) {
			return Done{}, a.Operators.ActNoMore(ctx, in.Body.Operator)
		},
	}
	GetOperatorAudit = Call[OperatorAuditInput, OperatorAudit]{
		Description{Method: "GET", Path: Prefix + "audit", ID: "get-operator-audit", Role: administration.RoleAdmin, Command: "operator audit list",
			Summary: "Search what operators did, newest call first"}, getOperatorAudit,
	}
	VerifyOperatorAudit = Call[VerifyAuditInput, audit.Report]{
		Description{Method: "GET", Path: Prefix + "audit/verification", ID: "verify-operator-audit", Role: administration.RoleAdmin, Command: "operator audit verify",
			Summary: "Check the chain of the operators' audit log"}, verifyOperatorAudit,
	}
)

// OperatorInput names an operator.
type OperatorInput struct {
	Write
	Operator string `path:"operator" maxLength:"63"`
}

// SetOperatorRunnerInput is as which Runner an operator acts.
type SetOperatorRunnerInput struct {
	Write
	Body SetOperatorRunnerBody
}

// SetOperatorRunnerBody is as which Runner an operator acts.
type SetOperatorRunnerBody struct {
	Operator string `json:"operator" minLength:"1" maxLength:"256" doc:"Name of the operator, or openid/NAME for a person who signs in by OpenID Connect."`
	Runner   string `json:"runner" minLength:"1" maxLength:"63"`
}

// DeleteOperatorRunnerInput names an operator who acts as no Runner any more.
type DeleteOperatorRunnerInput struct {
	Write
	Body DeleteOperatorRunnerBody
}

// DeleteOperatorRunnerBody names an operator who acts as no Runner any more.
type DeleteOperatorRunnerBody struct {
	Operator string `json:"operator" minLength:"1" maxLength:"256"`
}

// CreateOperatorInput describes an operator.
type CreateOperatorInput struct {
	Write
	Body CreateOperatorBody
}

// CreateOperatorBody describes an operator.
type CreateOperatorBody struct {
	Name    string   `json:"name" minLength:"1" maxLength:"63"`
	Role    string   `json:"role" enum:"viewer,operator,admin"`
	TTL     Duration `json:"ttl,omitempty" doc:"Lifetime of the certificate; 90 days if absent."`
	Replace bool     `json:"replace,omitempty" doc:"Replace the credentials and the role of an existing operator."`
}

func createOperator(ctx context.Context, a *administration.Admin, in *CreateOperatorInput) (administration.Credentials, error) {
	ttl := cmp.Or(time.Duration(in.Body.TTL), administration.DefaultOperatorTTL)
	return a.Operators.Create(ctx, administration.OperatorOptions{Name: in.Body.Name, Role: in.Body.Role, TTL: ttl, Replace: in.Body.Replace})
}

// VerifyAuditInput has a head that was noted before, without which missing records at the log's end
// go unnoticed.
type VerifyAuditInput struct {
	Seq  int64  `query:"seq" minimum:"0"`
	Hash string `query:"hash" pattern:"^[0-9a-f]*$" maxLength:"64"`
}

func verifyOperatorAudit(ctx context.Context, a *administration.Admin, in *VerifyAuditInput) (audit.Report, error) {
	return audit.Verify(ctx, auditStore{a.Database()}, runnerapi.AuditHead{Seq: in.Seq, Hash: in.Hash})
}
