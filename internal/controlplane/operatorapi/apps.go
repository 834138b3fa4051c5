package operatorapi

import (
	"context"
	"slices"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
)

// appPath is the path of an App of an agent.
const appPath = Prefix + "agents/{agent}/apps/{namespace}/{app}"

// The calls about an agent's Apps, which the agent carries out as those of the Runner as which the
// operator acts.
var (
	GetApp = Call[GetAppInput, AppDetail]{
		Description{Method: "GET", Path: appPath, ID: "get-agent-app", Role: administration.RoleViewer, Command: "pipeops-runner status",
			Summary: "Show an App and its revisions, as a Runner"}, getApp,
	}
	ListAppChoices = Call[AppChoicesInput, AppChoices]{
		Description{Method: "GET", Path: Prefix + "agents/{agent}/app-choices", ID: "list-agent-app-choices", Role: administration.RoleOperator, Command: "pipeops-runner namespace list",
			Summary: "List what a new App's spec can name, as a Runner"}, listAppChoices,
	}
	DeployApp = Call[DeployAppInput, runnerapi.App]{
		Description{Method: "PUT", Path: appPath, ID: "deploy-agent-app", Role: administration.RoleOperator, Command: "pipeops-runner deploy",
			Summary: "Deploy an App, as a Runner", Hidden: []string{"spec"}},
		func(ctx context.Context, a *administration.Admin, in *DeployAppInput) (runnerapi.App, error) {
			return onAgent(ctx, a, in.AppKey, func(c *client.Client) (runnerapi.App, error) {
				opts := writing(a)
				opts.Generation = in.Body.Generation
				return c.Apps().Deploy(ctx, in.key(), in.Body.Spec, opts)
			})
		},
	}
	RestartApp = Call[AppInput, runnerapi.App]{
		Description{Method: "POST", Path: appPath + "/restart", ID: "restart-agent-app", Role: administration.RoleOperator, Command: "pipeops-runner restart",
			Summary: "Restart an App, as a Runner"},
		func(ctx context.Context, a *administration.Admin, in *AppInput) (runnerapi.App, error) {
			return onAgent(ctx, a, in.AppKey, func(c *client.Client) (runnerapi.App, error) { return c.Apps().Restart(ctx, in.key(), writing(a)) })
		},
	}
	PauseApp = Call[AppInput, runnerapi.App]{
		Description{Method: "POST", Path: appPath + "/pause", ID: "pause-agent-app", Role: administration.RoleOperator, Command: "pipeops-runner pause",
			Summary: "Stop changes of an App, as a Runner"},
		func(ctx context.Context, a *administration.Admin, in *AppInput) (runnerapi.App, error) {
			return onAgent(ctx, a, in.AppKey, func(c *client.Client) (runnerapi.App, error) { return c.Apps().Pause(ctx, in.key(), writing(a)) })
		},
	}
	ResumeApp = Call[AppInput, runnerapi.App]{
		Description{Method: "POST", Path: appPath + "/resume", ID: "resume-agent-app", Role: administration.RoleOperator, Command: "pipeops-runner resume",
			Summary: "Roll out what changed while an App was paused, as a Runner"},
		func(ctx context.Context, a *administration.Admin, in *AppInput) (runnerapi.App, error) {
			return onAgent(ctx, a, in.AppKey, func(c *client.Client) (runnerapi.App, error) { return c.Apps().Resume(ctx, in.key(), writing(a)) })
		},
	}
	DeleteApp = Call[AppInput, Done]{
		Description{Method: "DELETE", Path: appPath, ID: "delete-agent-app", Role: administration.RoleOperator, Command: "pipeops-runner delete",
			Summary: "Delete an App, as a Runner"},
		func(ctx context.Context, a *administration.Admin, in *AppInput) (Done, error) {
			return onAgent(ctx, a, in.AppKey, func(c *client.Client) (Done, error) { return Done{}, c.Apps().Delete(ctx, in.key(), writing(a)) })
		},
	}
	ScaleApp = Call[ScaleAppInput, runnerapi.App]{
		Description{Method: "POST", Path: appPath + "/scale", ID: "scale-agent-app", Role: administration.RoleOperator, Command: "pipeops-runner scale",
			Summary: "Set the number of an App's pods, as a Runner"},
		func(ctx context.Context, a *administration.Admin, in *ScaleAppInput) (runnerapi.App, error) {
			return onAgent(ctx, a, in.AppKey, func(c *client.Client) (runnerapi.App, error) {
				return c.Apps().Scale(ctx, in.key(), runnerapi.Scale{Replicas: &in.Body.Replicas}, writing(a))
			})
		},
	}
	RollbackApp = Call[RollbackAppInput, runnerapi.App]{
		Description{Method: "POST", Path: appPath + "/rollback", ID: "rollback-agent-app", Role: administration.RoleOperator, Command: "pipeops-runner rollback",
			Summary: "Go back to a revision of an App, as a Runner"},
		func(ctx context.Context, a *administration.Admin, in *RollbackAppInput) (runnerapi.App, error) {
			return onAgent(ctx, a, in.AppKey, func(c *client.Client) (runnerapi.App, error) {
				return c.Apps().Rollback(ctx, in.key(), runnerapi.RollbackTo{Revision: in.Body.Revision}, writing(a))
			})
		},
	}
)

// AppKey names an App of an agent.
type AppKey struct {
	Agent     string `path:"agent" maxLength:"63"`
	Namespace string `path:"namespace" maxLength:"63"`
	App       string `path:"app" maxLength:"63"`
}

func (k AppKey) key() runnerapi.Key { return runnerapi.Key{Namespace: k.Namespace, Name: k.App} }

// GetAppInput names an App.
type GetAppInput struct{ AppKey }

// AppChoicesInput names an agent, and the namespace of an App.
type AppChoicesInput struct {
	Agent     string `path:"agent" maxLength:"63"`
	Namespace string `query:"namespace" maxLength:"63" doc:"Whose Secrets and ConfigMaps are listed; none when absent."`
}

// AppChoices are what an App's spec can name. What the Runner may not list is empty.
type AppChoices struct {
	AgentID       string   `json:"agentId"`
	AgentName     string   `json:"agentName"`
	GatewayDomain string   `json:"gatewayDomain,omitempty" doc:"Below it are the hosts of public Apps; absent without a gateway."`
	Namespaces    []string `json:"namespaces" nullable:"false"`
	SecretKeys    []string `json:"secretKeys" nullable:"false" doc:"NAME/KEY of each key of each Secret."`
	ConfigMapKeys []string `json:"configMapKeys" nullable:"false" doc:"NAME/KEY of each key of each ConfigMap."`
	PullSecrets   []string `json:"pullSecrets" nullable:"false" doc:"Names of the Secrets with the credentials of a registry."`
}

// AppInput names an App that is changed.
type AppInput struct {
	Write
	AppKey
}

// DeployAppInput is what an App becomes.
type DeployAppInput struct {
	Write
	AppKey
	Body DeployAppBody
}

// DeployAppBody is what an App becomes.
type DeployAppBody struct {
	Spec       runnerapi.AppSpec `json:"spec" doc:"The whole spec, as in the Runner API. The audit log does not get it: it may have secrets."`
	Generation int64             `json:"generation,omitempty" minimum:"1" doc:"The App's generation from which the spec was made: with another one the call is refused."`
}

// ScaleAppInput is how many pods an App gets.
type ScaleAppInput struct {
	Write
	AppKey
	Body ScaleAppBody
}

// ScaleAppBody is how many pods an App gets.
type ScaleAppBody struct {
	Replicas int32 `json:"replicas" minimum:"0" maximum:"1000" doc:"Number of pods to run; turns autoscaling off."`
}

// RollbackAppInput is to what an App goes back.
type RollbackAppInput struct {
	Write
	AppKey
	Body RollbackAppBody
}

// RollbackAppBody is to what an App goes back.
type RollbackAppBody struct {
	Revision int64 `json:"revision" minimum:"1" doc:"Number of the revision."`
}

// AppDetail is an App, and as which Runner it was read.
type AppDetail struct {
	runnerapi.App
	Runner    string               `json:"runner" doc:"The Runner as which the operator acts."`
	AgentName string               `json:"agentName"`
	Revisions []runnerapi.Revision `json:"revisions" nullable:"false" doc:"The newest first."`
	Source    *runnerapi.Source    `json:"source,omitempty" doc:"The Git source that the App comes from. Absent for an App without one, or if the customer's policy hides it."`
	Traffic   *runnerapi.Traffic   `json:"traffic,omitempty" doc:"What visitors requested in the last hour. Absent for an App without a public host, or if the customer's policy hides it."`
}

// writing returns how a command is sent: a dry run stays one.
func writing(a *administration.Admin) runnerapi.WriteOptions {
	return runnerapi.WriteOptions{DryRun: a.IsDryRun()}
}

func getApp(ctx context.Context, a *administration.Admin, in *GetAppInput) (AppDetail, error) {
	return onAgent(ctx, a, in.AppKey, func(c *client.Client) (d AppDetail, err error) {
		if d.App, err = c.Apps().Get(ctx, in.key()); err != nil {
			return d, err
		}
		if d.Revisions, err = c.Apps().Revisions(ctx, in.key()); err != nil {
			return d, err
		}
		slices.SortFunc(d.Revisions, func(x, y runnerapi.Revision) int { return int(y.Revision - x.Revision) })
		if sources, err := c.Sources().List(ctx, in.Namespace); err == nil { // the page is of use without them
			d.Source = runnerapi.SourceOf(in.App, sources)
		}
		if d.Spec.Ingress != nil {
			if t, err := c.Routes().Traffic(ctx, in.key(), runnerapi.TrafficOptions{}); err == nil { // the page is of use without it
				d.Traffic = &t
			}
		}
		agent, err := a.Agents.Get(ctx, in.Agent, 0)
		if err != nil {
			return d, err
		}
		d.AgentName = agent.Agent.Name
		runner, err := a.Settings().Acting.Runner(ctx, visitOf(ctx).caller.Operator.Name)
		d.Runner = runner.Name
		return d, err
	})
}

// onAgent calls an agent as the Runner as which the caller acts.
func onAgent[T any](ctx context.Context, a *administration.Admin, k AppKey, do func(*client.Client) (T, error)) (T, error) {
	var none T
	at, isVisit := ctx.Value(visitKey{}).(*visit)
	if !isVisit || a.Settings().Acting == nil {
		return none, problem.Errorf(problem.Conflict, "leave out --offline, or use pipeops-runner", "an App is reached by a control plane that serves")
	}
	c, err := actingClient(ctx, a, at.caller.Operator, k.Agent)
	if err != nil {
		return none, err
	}
	defer c.Close()
	return do(c)
}

func actingClient(ctx context.Context, a *administration.Admin, o store.Operator, agent string) (*client.Client, error) {
	found, err := a.Agents.Get(ctx, agent, 0)
	if err != nil {
		return nil, err
	}
	return a.Settings().Acting.Client(ctx, o.Name, found.Agent.ID)
}

// AppLog is a part of an App's log.
type AppLog struct {
	AppKey
	runnerapi.LogOptions
}

// Logs calls emit for each line of an App's log, as the Runner as which the caller in the context
// acts. While a log is followed, call ReadsApps again and again: a session may end meanwhile.
func (s *Server) Logs(ctx context.Context, in AppLog, emit func(runnerapi.LogLine) error) error {
	operator, err := s.ReadsApps(ctx)
	if err != nil {
		return err
	}
	c, err := actingClient(ctx, s.performer.admin, operator, in.Agent)
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Apps().Logs(ctx, in.key(), in.LogOptions, emit)
}

// ReadsApps returns the caller in the context if that is an operator who acts as a Runner now.
func (s *Server) ReadsApps(ctx context.Context) (store.Operator, error) {
	identify, within := ctx.Value(callerKey{}).(func(context.Context) (Caller, error))
	if !within {
		return store.Operator{}, problem.Errorf(problem.Unauthorized, "sign in", "there is no caller")
	}
	caller, err := identify(ctx)
	if err == nil && !administration.Includes(caller.Operator.Role, GetApp.Role) {
		err = problem.Errorf(problem.Forbidden, "have an operator with the role "+GetApp.Role+" do it", "operator %s has no role", caller.Operator.Name)
	}
	if err == nil {
		_, err = s.performer.admin.Settings().Acting.Runner(ctx, caller.Operator.Name)
	}
	return caller.Operator, err
}
