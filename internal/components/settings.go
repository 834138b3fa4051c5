package components

import (
	"slices"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// Mode says when a component is installed.
type Mode string

// The modes. Auto installs what the cluster lacks.
const (
	Auto   Mode = "auto"
	Always Mode = "always"
	Never  Mode = "never"
)

// Settings are what the person who installs decides, in one file.
type Settings struct {
	// Components by name. Those that are not named here are not installed.
	Components map[string]Setting `json:"components"`
	// Mirror replaces the address of every chart repository.
	Mirror string `json:"mirror,omitempty"`
	// HTTPHosts are HOST or HOST:PORT from which charts may come without TLS.
	HTTPHosts []string `json:"httpHosts,omitempty"`
}

// Setting is what is decided about a component.
type Setting struct {
	Mode Mode `json:"mode,omitempty"` // auto if empty
	// Values override ours, by the name of the chart.
	Values map[string]map[string]any `json:"values,omitempty"`
}

// ReadSettings reads a file of settings.
func ReadSettings(data []byte) (Settings, error) {
	var s Settings
	if err := ofFile.YAML(data, &s); err != nil {
		return s, problem.Errorf(problem.Invalid, "correct the file; docs/cluster-owner/components.md has an example", "the settings are not valid: %v", err)
	}
	return s, s.validate()
}

// Choose adds components that are to be installed, unless the file says something about them.
func (s *Settings) Choose(names []string, mode Mode) {
	if s.Components == nil {
		s.Components = map[string]Setting{}
	}
	for _, name := range names {
		if _, ok := s.Components[name]; !ok {
			s.Components[name] = Setting{Mode: mode}
		}
	}
}

func (s *Settings) validate() error {
	for name, setting := range s.Components {
		c, ok := find(name)
		if !ok {
			return unknown(name).WithField(fieldOf(name))
		}
		switch setting.Mode {
		case "", Auto, Always, Never:
		default:
			return problem.Errorf(problem.Invalid, "use auto, always or never", "mode %q is unknown", string(setting.Mode)).
				WithField(fieldOf(name, "mode"))
		}
		for chart := range setting.Values {
			if !c.has(chart) {
				return problem.Errorf(problem.Invalid, "use one of "+strings.Join(c.chartNames(), ", "), "component %s has no chart %q", name, chart).
					WithField(fieldOf(name, "values", chart))
			}
		}
	}
	return nil
}

func (c *Component) has(chart string) bool {
	return slices.ContainsFunc(c.Charts, func(own Chart) bool { return own.Name == chart })
}

func (c *Component) chartNames() []string {
	names := make([]string, 0, len(c.Charts))
	for _, chart := range c.Charts {
		names = append(names, chart.Name)
	}
	return names
}

func unknown(name string) *problem.Error {
	return problem.Errorf(problem.Invalid, "use one of "+strings.Join(Names(), ", "), "there is no component %q", name)
}

// fieldOf returns the place of a field in the file of settings.
func fieldOf(component string, more ...string) string {
	return strings.Join(append([]string{"components", component}, more...), ".")
}
