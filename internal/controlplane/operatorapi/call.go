package operatorapi

import (
	"context"
	"net/http"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
)

// Prefix begins the path of every call.
const Prefix = "/v1/operator/"

// Description is what there is to know about a call.
type Description struct {
	Method, Path string
	ID           string // operationId in the document, and the command in the audit log
	Role         string // the least role that may call it
	Summary      string
	Command      string // of pipeops-controlplane, or with the name of another program
	// Once reports that the answer has a secret, which is not kept: a repeated Idempotency-Key
	// does not get it again.
	Once bool
	// Hidden are the fields of the body that the audit log does not get.
	Hidden []string
}

// Changes reports whether the call changes anything.
func (d *Description) Changes() bool { return d.Method != http.MethodGet }

// Call is a call with its input and output. The input's fields have huma's tags.
type Call[I, O any] struct {
	Description
	run func(ctx context.Context, a *administration.Admin, in *I) (O, error)
}

// Do has a target carry out the call.
func (c *Call[I, O]) Do(ctx context.Context, t Target, in I) (O, error) {
	var out O
	err := t.do(ctx, &c.Description, &in, &out, func(ctx context.Context, a *administration.Admin) (err error) {
		out, err = c.run(ctx, a, &in)
		return err
	})
	if err != nil {
		var none O
		return none, err
	}
	return out, nil
}

func (c *Call[I, O]) describe() Description { return c.Description }

// Target carries out calls.
type Target interface {
	// do carries out a call. Either run does, or another process, whose answer is decoded into out.
	do(ctx context.Context, d *Description, in, out any, run func(context.Context, *administration.Admin) error) error
	// Close releases what the target holds.
	Close() error
}

// anyCall is a call of any type.
type anyCall interface {
	describe() Description
	register(s *server)
}

// calls returns all calls, in the order of the document.
func calls() []anyCall {
	return []anyCall{
		&Search,
		&ListTokens, &CreateToken, &RotateToken, &RevokeToken,
		&ListAgents, &ListAgentStates, &GetAgent, &GetTimeline, &GetAgentAudit, &LabelAgent, &ApproveAgent, &DenyAgent, &RevokeAgent, &DeleteAgent,
		&ListAgentNodes, &ListAgentObjects, &GetApp, &ListAppChoices, &DeployApp, &RestartApp, &PauseApp, &ResumeApp, &ScaleApp, &RollbackApp, &DeleteApp,
		&ListRunners, &CreateRunner, &GrantRunner, &RevokeRunner,
		&ListWebhooks, &CreateWebhook, &UpdateWebhook, &RotateWebhook, &EnableWebhook, &TestWebhook, &DeleteWebhook, &ListDeliveries,
		&ListReleases, &CreateOffer, &DeleteOffer,
		&ListRoutes, &ListHostGrants, &CreateHostGrant, &DeleteHostGrant, &GetGatewayCA,
		&ListDeadLetters, &RequeueDeadLetters, &DeleteDeadLetters,
		&ListReplicas,
		&GetCA, &ListCertificates, &RotateCA,
		&ListOperators, &CreateOperator, &RevokeOperator, &ListOperatorRunners, &SetOperatorRunner, &DeleteOperatorRunner, &ListConsoleSessions, &DeleteConsoleSessions, &GetOperatorAudit, &VerifyOperatorAudit, &CreateConsoleCode, &RenewOperator,
	}
}

// Calls describes all calls.
func Calls() []Description {
	all := calls()
	list := make([]Description, len(all))
	for i, c := range all {
		list[i] = c.describe()
	}
	return list
}

// Write is the part of every change's input.
type Write struct {
	DryRun         bool   `query:"dryRun" doc:"Only report whether the change is possible. Nothing is changed."`
	IdempotencyKey string `header:"Idempotency-Key" pattern:"^[A-Za-z0-9._:-]+$" maxLength:"128" doc:"The same key with the same request carries it out once. Kept for a day."`
}

func (w *Write) write() *Write { return w }

// change is the input of a change.
type change interface{ write() *Write }

// writeOf returns how a change was sent; nil for a call that reads.
func writeOf(in any) *Write {
	if c, ok := in.(change); ok {
		return c.write()
	}
	return nil
}

// Done is the answer of a change that has nothing to report.
type Done struct{}

// List is a list in an answer.
type List[T any] struct {
	Items []T `json:"items" nullable:"false"`
}

func listOf[T any](items []T, err error) (List[T], error) {
	if items == nil {
		items = []T{}
	}
	return List[T]{items}, err
}
