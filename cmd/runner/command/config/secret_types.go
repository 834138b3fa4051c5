package config

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Kubernetes' types of Secrets, with the short names that may be given.
const (
	typeOpaque = "Opaque"
	typeTLS    = "kubernetes.io/tls"
	typeDocker = "kubernetes.io/dockerconfigjson"
)

var shortTypes = map[string]string{"tls": typeTLS, "docker": typeDocker, "opaque": typeOpaque}

// maxPassword is more than any registry's token has.
const maxPassword = 64 << 10

// certificateFlags make a TLS secret.
type certificateFlags struct{ cert, key string }

func (f *certificateFlags) add(fl *pflag.FlagSet) {
	fl.StringVar(&f.cert, "cert", "", "certificate and its chain in PEM, for --type tls")
	fl.StringVar(&f.key, "key", "", "private key of the certificate in PEM, for --type tls")
}

func (f *certificateFlags) given() bool { return f.cert != "" || f.key != "" }

func (f *certificateFlags) spec(kind string, in io.Reader) (runnerapi.SecretSpec, error) {
	if kind != typeTLS && kind != typeOpaque {
		return runnerapi.SecretSpec{}, cli.Usage(fmt.Errorf("--cert and --key make a secret of --type tls, not %s", kind))
	}
	if f.cert == "" || f.key == "" {
		return runnerapi.SecretSpec{}, cli.Usage(errors.New("a TLS secret needs both --cert and --key"))
	}
	spec := runnerapi.SecretSpec{Type: typeTLS, Data: map[string]string{}}
	for name, path := range map[string]string{"tls.crt": f.cert, "tls.key": f.key} {
		pem, err := cli.ReadLimited(path, in, maxSecret)
		if err != nil {
			return spec, cli.Usage(fmt.Errorf("%s: %w", name, err))
		}
		spec.Data[name] = string(pem)
	}
	return spec, nil
}

// registryFlags make a pull secret. There is no flag for the password's value:
// it would be in the list of processes and in the shell's history.
type registryFlags struct {
	server, user, email string
	passwordStdin       bool
}

func (f *registryFlags) add(fl *pflag.FlagSet) {
	fl.StringVar(&f.server, "docker-server", "", "registry of a pull secret, e.g. ghcr.io or registry.example.com:5000")
	fl.StringVar(&f.user, "docker-username", "", "user at the registry")
	fl.StringVar(&f.email, "docker-email", "", "email address of the user, which few registries need")
	fl.BoolVar(&f.passwordStdin, "docker-password-stdin", false, "read the registry's password or token from standard input")
}

func (f *registryFlags) given() bool {
	return f.server != "" || f.user != "" || f.email != "" || f.passwordStdin
}

func (f *registryFlags) spec(kind string, in io.Reader) (runnerapi.SecretSpec, error) {
	switch {
	case kind != typeDocker && kind != typeOpaque:
		return runnerapi.SecretSpec{}, cli.Usage(fmt.Errorf("--docker-server makes a secret of --type docker, not %s", kind))
	case f.server == "" || f.user == "" || !f.passwordStdin:
		return runnerapi.SecretSpec{}, cli.Usage(errors.New("a pull secret needs --docker-server, --docker-username and --docker-password-stdin"))
	case strings.ContainsAny(f.server, " \t\n"):
		return runnerapi.SecretSpec{}, cli.Usage(errors.New("--docker-server: expected a registry such as ghcr.io"))
	}
	raw, err := cli.ReadLimited("-", in, maxPassword)
	if err != nil {
		return runnerapi.SecretSpec{}, cli.Usage(fmt.Errorf("the registry's password: %w", err))
	}
	password := strings.TrimRight(string(raw), "\r\n")
	if password == "" {
		return runnerapi.SecretSpec{}, cli.Usage(errors.New("no password came on standard input"))
	}
	type login struct {
		Username string `json:"username"`
		Password string `json:"password"`
		Email    string `json:"email,omitempty"`
		Auth     string `json:"auth"`
	}
	config, err := json.Marshal(map[string]map[string]login{"auths": {f.server: { //nolint:gosec // this is what a pull secret is
		Username: f.user, Password: password, Email: f.email,
		Auth: base64.StdEncoding.EncodeToString([]byte(f.user + ":" + password)),
	}}})
	if err != nil {
		return runnerapi.SecretSpec{}, err
	}
	return runnerapi.SecretSpec{Type: typeDocker, Data: map[string]string{".dockerconfigjson": string(config)}}, nil
}
