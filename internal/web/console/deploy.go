package console

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/pipeops/pipeops-vm-agent/internal/appfile"
	"github.com/pipeops/pipeops-vm-agent/internal/appform"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/web"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// deployPath is the path of the form for an App's spec, below the console's.
const deployPath = "/agents/{name}/deploy"

// The views of the form, each with the spec of the one before.
const (
	viewForm    = "form"
	viewYAML    = "yaml"
	viewPreview = "preview"
)

// The fields of the form beside those of package appform.
const (
	// fieldView names the view in which the form is, and fieldTo what its button asks for.
	fieldView, fieldTo = "view", "to"
	fieldBase          = "base" // the spec that the form was filled in from, as JSON
	fieldYAML          = "yaml"
	fieldGeneration    = "generation" // of the App from which the form was filled in
	toDeploy           = "deploy"
)

// blankRows are the rows of the environment that wait to be filled in.
const blankRows = 3

// deployPages are the form for an App's spec.
type deployPages struct{ *site }

// deployData is what the form shows.
type deployData struct {
	operatorapi.AppChoices
	Key        operatorapi.AppKey
	View       string
	Form       appform.Form
	Base       string
	YAML       string
	Generation int64 // 0 for a new App
	Existing   bool  // the name and the type are fixed
	Errors     appform.Errors
	Problem    *problem.Error
	Preview    *preview
	Command    string
	Action     string
	Once       string
	Back       string
}

// Types are the types that an App may have.
func (deployData) Types() []runnerapi.AppType {
	return []runnerapi.AppType{
		runnerapi.TypeDeployment, runnerapi.TypeStatefulSet, runnerapi.TypeDaemonSet, runnerapi.TypeJob, runnerapi.TypeCronJob, runnerapi.TypePipeline,
	}
}

// Presets are the sizes that a pod may have.
func (deployData) Presets() []appform.Preset { return appform.Presets }

// Blank are the rows of the environment that wait to be filled in.
func (d deployData) Blank() []appform.Variable { return make([]appform.Variable, blankRows) }

// Fields are the properties of a spec, from the Runner API's schema.
func (deployData) Fields() []property { return specProperties() }

// property is a property of an App's spec.
type property struct{ Name, Text string }

var specProperties = sync.OnceValue(func() (list []property) {
	for field := range reflect.TypeFor[runnerapi.AppSpec]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		list = append(list, property{name, field.Tag.Get("doc")})
	}
	return list
})

// firstFields are always shown.
var firstFields = []string{"app", appform.Image, appform.Ports, appform.Public, appform.Replicas}

// More reports whether the fields that few Apps need are shown.
func (d deployData) More() bool {
	for field := range d.Errors {
		if !slices.Contains(firstFields, field) && !strings.HasPrefix(field, "env.") {
			return true
		}
	}
	f := d.Form
	return f.Size == appform.Custom || f.AllowRoot || f.Hosts+f.PublicPorts+f.AllowFrom+f.BasicAuth+f.SignIn+f.SignInTo+f.Tokens+f.Schedule+f.TimeZone+f.ProbePath+f.Command+f.Args+f.PullSecrets != ""
}

// EnvError returns what is wrong with a row of the environment.
func (d deployData) EnvError(row int) string { return d.Errors["env."+strconv.Itoa(row)] }

// open shows the form with what the App has.
func (p *deployPages) open(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := context.WithTimeout(calling(r.Context()), readTimeout)
	defer cancel()
	key := appIn(r.PathValue("name"), r.URL.Query())
	data, spec := deployData{Key: key, View: viewForm}, runnerapi.AppSpec{}
	if err := p.choose(ctx, &data); err != nil {
		return err
	}
	if key.App != "" {
		found, err := operatorapi.GetApp.Do(ctx, p.opts.API, operatorapi.GetAppInput{AppKey: key})
		if err != nil && !problem.Is(err, problem.NotFound) {
			return err
		}
		spec, data.Generation, data.Existing = found.Spec, found.Generation, err == nil
	}
	if r.URL.Query().Get(fieldView) == viewYAML {
		data.View = viewYAML
	}
	if err := data.fill(spec); err != nil {
		return err
	}
	return p.show(w, r, http.StatusOK, data)
}

// sent carries out what a button of the form asks for: another view of the spec, or the deployment.
func (p *deployPages) sent(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := context.WithTimeout(calling(r.Context()), readTimeout)
	defer cancel()
	key := appIn(r.PathValue("name"), r.PostForm)
	data, spec, err := read(key, r.PostForm)
	if err != nil {
		return err
	}
	data.Existing = r.URL.Query().Get("app") != ""
	if err := p.choose(ctx, &data); err != nil {
		return err
	}
	if to := r.PostForm.Get(fieldTo); to == data.View { // more rows
		data.Errors = nil
		return p.show(w, r, http.StatusOK, data)
	}
	switch {
	case len(data.Errors) > 0 || data.Problem != nil: // also one of the agent's
		return p.show(w, r, http.StatusUnprocessableEntity, data)
	case slices.Contains([]string{viewForm, viewYAML}, r.PostForm.Get(fieldTo)):
		data.View = r.PostForm.Get(fieldTo)
		if err := data.fill(spec); err != nil {
			return err
		}
		return p.show(w, r, http.StatusOK, data)
	}
	if data.Generation == 0 { // of a new App
		_, err := operatorapi.GetApp.Do(ctx, p.opts.API, operatorapi.GetAppInput{AppKey: key})
		if err == nil {
			data.Errors["app"] = "an App of this name exists: open it and choose Change"
			return p.show(w, r, http.StatusConflict, data)
		}
	}
	in := operatorapi.DeployAppInput{
		Write: form{name: key.Agent, values: r.PostForm}.write(), AppKey: key, Body: operatorapi.DeployAppBody{Spec: spec, Generation: data.Generation},
	}
	if r.PostForm.Get(fieldTo) == viewPreview {
		in.DryRun, in.IdempotencyKey = true, ""
	}
	_, err = operatorapi.DeployApp.Do(ctx, p.opts.API, in)
	switch {
	case err != nil:
		return p.refused(w, r, data, err)
	case !in.DryRun:
		http.Redirect(w, r, appPath(key)+"&done=deploy-app", http.StatusSeeOther) //nolint:gosec // below the console's own path
		return nil
	}
	if data.Preview, err = p.preview(ctx, data, spec); err != nil {
		return err
	}
	data.View = viewPreview
	if err := data.fill(spec); err != nil {
		return err
	}
	return p.show(w, r, http.StatusOK, data)
}

// read returns what was sent, in the view from which it was, and the spec that it describes.
func read(key operatorapi.AppKey, sent url.Values) (data deployData, spec runnerapi.AppSpec, err error) {
	data = deployData{Key: key, View: sent.Get(fieldView), Base: sent.Get(fieldBase), Errors: appform.Errors{}}
	if text := sent.Get(fieldGeneration); text != "" {
		if data.Generation, err = strconv.ParseInt(text, 10, 64); err != nil {
			return data, spec, problem.Errorf(problem.BadRequest, "load the page again", "the form has no valid generation of the App")
		}
	}
	var base runnerapi.AppSpec
	if data.Base != "" {
		if err := operatorapi.Decode([]byte(data.Base), &base); err != nil {
			return data, spec, problem.Errorf(problem.BadRequest, "load the page again", "the form has no valid spec of the App: %v", err)
		}
	}
	if key.Namespace == "" || key.App == "" {
		data.Errors["app"] = "name the App and its namespace"
	}
	switch data.View {
	case viewYAML:
		data.YAML = sent.Get(fieldYAML)
		spec, data.Problem = specOf(key, data.YAML)
		return data, spec, nil
	case viewPreview:
		return data, base, data.fill(base)
	}
	data.View, data.Form = viewForm, appform.Decode(sent)
	spec, wrong := data.Form.Apply(base)
	for field, message := range wrong {
		data.Errors[field] = message
	}
	for _, e := range slices.Concat(spec.Validate(), spec.ValidateName(key.App)) {
		data.blame(e)
	}
	return data, spec, nil
}

// specOf returns the spec in a text of YAML: a bare spec, or an App of this name.
func specOf(key operatorapi.AppKey, text string) (runnerapi.AppSpec, *problem.Error) {
	file, err := appfile.Read([]byte(text))
	if err == nil && (file.Name != "" && file.Name != key.App || file.Namespace != "" && file.Namespace != key.Namespace) {
		err = errors.New("metadata is of another App")
	}
	if err != nil {
		return file.Spec, problem.Errorf(problem.Invalid, "correct the text", "the YAML %v", err)
	}
	return file.Spec, nil
}

// blame puts an error at its field, or above the form if that has no such field.
func (d *deployData) blame(e runnerapi.FieldError) {
	field := appform.FieldOf(e.Field)
	if e.Field == "path.name" {
		field = "app"
	}
	switch {
	case field != "" && d.View == viewForm:
		if d.Errors[field] == "" {
			d.Errors[field] = e.Message
		}
	case d.Problem == nil:
		d.Problem = problem.Errorf(problem.Invalid, "correct it in the YAML", "%s", e.String())
	}
}

// refused shows the form again, with what was sent and why that was refused.
func (p *deployPages) refused(w http.ResponseWriter, r *http.Request, data deployData, why error) error {
	shown := web.ProblemOf(why)
	if shown.Status == http.StatusUnauthorized {
		return why
	}
	if data.View == viewPreview {
		data.View = viewForm
	}
	wrong := shown.Fields
	if len(wrong) == 0 && shown.Code == problem.Invalid && shown.Field != "" {
		wrong = []runnerapi.FieldError{{Field: shown.Field, Message: shown.Detail}}
	}
	for _, e := range wrong {
		data.blame(e)
	}
	if len(wrong) == 0 {
		data.Problem = shown
	}
	return p.show(w, r, shown.Status, data)
}

// fill fills the form in with a spec, in all views.
func (d *deployData) fill(spec runnerapi.AppSpec) error {
	base, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	text, err := appfile.WriteSpec(spec)
	d.Base, d.Form, d.YAML = string(base), appform.Of(spec), string(text)
	return err
}

// choose adds what the spec can name. It returns an error if the operator may not deploy. One that
// the agent is to blame for stands above the form, which keeps what was typed.
func (p *deployPages) choose(ctx context.Context, data *deployData) error {
	if err := p.opts.ReadsApps(ctx); err != nil { // before a long form is filled in
		return err
	}
	in := operatorapi.AppChoicesInput{Agent: data.Key.Agent, Namespace: data.Key.Namespace}
	choices, err := operatorapi.ListAppChoices.Do(ctx, p.opts.API, in)
	if err == nil && in.Namespace == "" && len(choices.Namespaces) > 0 { // the browser chooses the first
		in.Namespace = choices.Namespaces[0]
		choices, err = operatorapi.ListAppChoices.Do(ctx, p.opts.API, in)
	}
	data.AppChoices = choices
	switch shown := web.ProblemOf(err); {
	case err == nil:
	case shown.Status == http.StatusUnauthorized, shown.Code == problem.Forbidden:
		return err
	case data.Problem == nil:
		data.Problem = shown
	}
	return nil
}

// show renders the form.
func (p *deployPages) show(w http.ResponseWriter, r *http.Request, status int, data deployData) error {
	if data.AgentName == "" {
		data.AgentName = data.Key.Agent
	}
	if data.Key.Namespace != "" && !slices.Contains(data.Namespaces, data.Key.Namespace) {
		data.Namespaces = append(data.Namespaces, data.Key.Namespace)
	}
	data.Action, data.Once, data.Back = r.URL.RequestURI(), rand.Text(), agentPath(data.Key.Agent)
	title := "Deploy an App to " + data.AgentName
	if data.Existing {
		data.Back, title = appPath(data.Key), "Change "+data.Key.App+" of "+data.AgentName
	}
	data.Command = web.CommandLine(runnerProgram+" deploy", data.AgentName, "-f", fileOf(data.Key))
	of := page(r, title, "/console/", "")
	of.Data = data
	p.pages.Render(w, r, status, "deploy", of)
	return nil
}

// fileOf is what the example of a command line calls an App's file.
func fileOf(key operatorapi.AppKey) string {
	if key.App == "" {
		return "app.yaml"
	}
	return key.App + ".yaml"
}
