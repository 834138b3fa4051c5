// Package composefile turns the services of a Compose file into Apps. The loader is that of `docker
// compose` itself. See https://github.com/compose-spec/compose-spec/blob/main/spec.md.
package composefile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/compose-spec/compose-go/v2/dotenv"
	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"

	"github.com/pipeops/pipeops-vm-agent/internal/decode"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// MaxSize bounds a file, in bytes.
const MaxSize = 1 << 20

// maxServices bounds how many Apps a file may become.
const maxServices = 100

// App is what a service becomes.
type App struct {
	Name string
	Spec runnerapi.AppSpec
	// Published reports that the service publishes a TCP port on its host.
	Published bool
	// Notes are what is different from `docker compose`.
	Notes []string
}

// Is reports whether a text is a Compose file and not an App's.
func Is(text []byte) bool {
	var head struct {
		Services map[string]any `json:"services"`
		Image    any            `json:"image"`
		Kind     any            `json:"kind"`
	}
	err := decode.LimitsFor(MaxSize).LooseYAML(text, &head)
	return err == nil && head.Services != nil && head.Image == nil && head.Kind == nil
}

// Read returns the Apps of a Compose file, each after those that it depends on. The path is that of
// the file, beside which its .env and env_file are. environ is as os.Environ has it. The error
// lists all that an App cannot be.
func Read(ctx context.Context, path string, text []byte, environ []string) ([]App, error) {
	if len(text) > MaxSize {
		return nil, fmt.Errorf("the file has more than %d bytes", MaxSize)
	}
	project, err := load(ctx, path, text, environ)
	if err != nil { // the loader's schema says "false schema" of a field that it does not have
		return nil, errors.New(strings.ReplaceAll(err.Error(), "false schema", "is not a field of a Compose file"))
	}
	if len(project.Services) == 0 || len(project.Services) > maxServices {
		return nil, fmt.Errorf("services: the file has %d; from 1 to %d can be deployed", len(project.Services), maxServices)
	}
	var apps []App
	var wrong []error
	users, names := volumeUsers(project), map[string]string{}
	for _, service := range ordered(project) {
		c := conversion{service: service, project: project, volumeUsers: users}
		app := c.app()
		if other, taken := names[app.Name]; taken {
			c.cannot("name", "would be the App %s, which service %s is, too", app.Name, other)
		}
		names[app.Name] = service.Name
		apps = append(apps, app)
		wrong = append(wrong, c.wrong...)
	}
	if left := slices.Sorted(maps.Keys(project.DisabledServices)); len(left) > 0 {
		apps[0].Notes = append(apps[0].Notes, "left out, as no profile of COMPOSE_PROFILES has them: services "+strings.Join(left, ", "))
	}
	return apps, errors.Join(wrong...)
}

func load(ctx context.Context, path string, text []byte, environ []string) (*types.Project, error) {
	dir, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	environment := types.NewMapping(environ)
	if file := filepath.Join(dir, ".env"); exists(file) {
		beside, err := dotenv.GetEnvFromFile(environment, []string{file})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		maps.Copy(beside, environment) // the environment counts more
		environment = beside
	}
	return loader.LoadWithContext(ctx, types.ConfigDetails{
		WorkingDir: dir, Environment: environment,
		ConfigFiles: []types.ConfigFile{{Filename: path, Content: text}},
	}, func(o *loader.Options) { o.SetProjectName("compose", true) }, loader.WithProfiles(profiles(environment["COMPOSE_PROFILES"])))
}

// profiles returns the names in COMPOSE_PROFILES.
func profiles(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}

func exists(file string) bool {
	info, err := os.Stat(file)
	return err == nil && info.Mode().IsRegular()
}

// ordered returns the services, each after those that it depends on. The loader refuses circles.
func ordered(p *types.Project) (list []types.ServiceConfig) {
	seen := map[string]bool{}
	var visit func(name string)
	visit = func(name string) {
		service, known := p.Services[name]
		if seen[name] || !known {
			return
		}
		seen[name] = true
		for _, before := range slices.Sorted(maps.Keys(service.DependsOn)) {
			visit(before)
		}
		list = append(list, service)
	}
	for _, name := range slices.Sorted(maps.Keys(p.Services)) {
		visit(name)
	}
	return list
}

// volumeUsers returns the services of each named volume.
func volumeUsers(p *types.Project) map[string][]string {
	users := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(p.Services)) {
		for _, v := range p.Services[name].Volumes {
			if v.Type == types.VolumeTypeVolume && v.Source != "" && !slices.Contains(users[v.Source], name) {
				users[v.Source] = append(users[v.Source], name)
			}
		}
	}
	return users
}

// appName returns a service's name as an App can have it.
func appName(service string) string {
	return strings.Trim(strings.ToLower(strings.NewReplacer("_", "-", ".", "-").Replace(service)), "-")
}
