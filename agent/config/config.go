package config

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/pipeops/pipeops-vm-agent/internal/boundedfile"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/decode"
	"github.com/pipeops/pipeops-vm-agent/internal/limit"
)

// maxFile bounds the --config file, the token file and the CA file.
const maxFile = 1 << 20

// Config is the agent's effective configuration.
type Config struct {
	ControlPlaneURL         string
	Token                   string
	TokenFile               string
	TokenSecret             string
	ServiceAccountTokenFile string
	ClusterName             string
	CAFile                  string
	StateDir                string
	PolicyFile              string
	Kubeconfig              string
	Namespace               string
	ServiceAccount          string
	Namespaces              []string
	FirstNamespaces         []string
	HealthAddress           string
	MetricsAddress          string
	AlertsTokenFile         string
	MetricsOnDemand         bool
	PprofAddress            string
	NodeType                string
	K3sURL                  string
	K3sToken                string
	EnableIngressSync       bool
	LogLevel                string
	SelfUpdate              bool
	UpdateWindow            string
	UpdateKeys              []string
	UpdateSignatures        int
	UpdateMirror            string
	UpdateDeadline          time.Duration
	Stabilization           time.Duration
	ChartHTTPHosts          []string
	FetchAddresses          []netip.Prefix
	DirectAddresses         []netip.Prefix
	BuildImage              string
	BuildToolsImage         string
	KubernetesStreams       int

	source map[string]string // key → where its value comes from
}

// AddFlags puts a flag for every setting that may be in process arguments.
func AddFlags(flags *pflag.FlagSet) {
	flags.String("config", "", "YAML file with any of the settings that config get shows")
	for _, s := range settings {
		if s.flag != "" {
			flags.String(s.flag, "", fmt.Sprintf("%s [%s]%s", s.usage, s.env, defaultText(s)))
		}
	}
}

func defaultText(s setting) string {
	if s.def == "" {
		return ""
	}
	return fmt.Sprintf(" (default %q)", s.def)
}

// Load reads flags, environment and file. Its error lists all mistakes at once.
func Load(flags *pflag.FlagSet, getenv func(string) string) (Config, error) {
	path, _ := flags.GetString("config")
	file, err := readFile(path)
	if err != nil {
		return Config{}, err
	}
	c := Config{source: map[string]string{}}
	errs := unknownKeys(path, file)
	for _, s := range settings {
		value, source := lookUp(s, flags, getenv, file, path)
		c.source[s.key] = source
		if err := assign(s.field(&c), value); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w (set by %s)", s.name(), err, source))
		}
	}
	errs = append(errs, c.readToken()...)
	c.useAddress()
	errs = append(errs, c.check()...)
	return c, errors.Join(errs...)
}

// lookUp returns a setting's value and its source.
func lookUp(s setting, flags *pflag.FlagSet, getenv func(string) string, file map[string]any, path string) (value, source string) {
	if f := flags.Lookup(s.flag); s.flag != "" && f != nil && f.Changed {
		return f.Value.String(), "--" + s.flag
	}
	if v := getenv(s.env); v != "" {
		return v, s.env
	}
	if v, ok := file[s.key]; ok && v != nil {
		return fmt.Sprint(v), path
	}
	return s.def, fromDefault
}

// fromDefault is the source of a setting that nothing sets.
const fromDefault = "default"

func assign(field any, value string) error {
	switch f := field.(type) {
	case *string:
		*f = strings.TrimSpace(value)
	case *[]string:
		*f = words(value)
	case *[]netip.Prefix:
		for _, word := range words(value) {
			p, err := limit.ParseNetwork(word)
			if err != nil {
				return err
			}
			*f = append(*f, p)
		}
	case *bool:
		b, err := strconv.ParseBool(value)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", value)
		}
		*f = b
	case *int:
		n, err := strconv.Atoi(value)
		if err != nil {
			return fmt.Errorf("%q is not a number", value)
		}
		*f = n
	case *time.Duration:
		d, err := time.ParseDuration(value)
		if err != nil {
			return fmt.Errorf("%q is not a duration (fix: write it as 90s or 5m)", value)
		}
		*f = d
	}
	return nil
}

func words(value string) []string {
	return strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == ' ' })
}

func readFile(path string) (map[string]any, error) {
	if path == "" {
		return nil, nil
	}
	text, err := boundedfile.Read(path, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("--config: there is no file %s (fix: copy deployments/config.yaml of the release, which has every setting)", path)
	}
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	return parseFile(path, text)
}

func parseFile(path string, text []byte) (map[string]any, error) {
	values := map[string]any{}
	if err := decode.Text.YAML(text, &values); err != nil {
		return nil, fmt.Errorf("--config: %s is not a YAML file of settings: %w", path, err)
	}
	return values, nil
}

// unknownKeys refuses keys that a typing error would silently disable, and values that are not
// plain text, a number or a boolean.
func unknownKeys(path string, file map[string]any) (errs []error) {
	known := map[string]bool{}
	for _, s := range settings {
		known[s.key] = true
	}
	for key, value := range file {
		if !known[key] {
			errs = append(errs, fmt.Errorf("%s: unknown key %q (fix: remove it; `pipeops-agent config get` lists the keys)", path, key))
			continue
		}
		switch value.(type) {
		case map[string]any, []any:
			errs = append(errs, fmt.Errorf("%s: %s: must be a single value", path, key))
		}
	}
	return errs
}

// useAddress takes the control plane's URL from the token if no setting names it. Whether the token
// is one is checked when it is used.
func (c *Config) useAddress() {
	token, err := controlapi.ParseToken(c.Token)
	if c.ControlPlaneURL != "" || err != nil || token.Address == "" {
		return
	}
	c.ControlPlaneURL, c.source["controlPlaneUrl"] = token.URL(), "the token"
}

// CurrentToken returns the enrolment token as its file has it now, so that a new one needs no
// restart. If the file cannot be read, it is the one of the start.
func (c *Config) CurrentToken() string {
	if c.TokenFile == "" {
		return c.Token
	}
	text, err := boundedfile.Read(c.TokenFile, maxFile)
	if err != nil {
		return c.Token
	}
	return strings.TrimSpace(string(text))
}

// readToken takes the token out of its file. A token that is given twice is an
// error: which one counts would be a guess. The file of a registered agent may be empty.
func (c *Config) readToken() []error {
	if c.TokenFile == "" {
		return nil
	}
	if c.Token != "" {
		return []error{fmt.Errorf("AGENT_TOKEN, AGENT_TOKEN_FILE: both are set (fix: set one)")}
	}
	text, err := boundedfile.Read(c.TokenFile, maxFile)
	if err != nil {
		return []error{fmt.Errorf("AGENT_TOKEN_FILE: %w", err)}
	}
	c.Token = strings.TrimSpace(string(text))
	return nil
}
