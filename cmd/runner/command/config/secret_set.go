package config

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/tables"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// maxSecret is what Kubernetes takes.
const maxSecret = 1 << 20

// secretSet writes a secret.
type secretSet struct {
	*cmdutil.CLI
	out       cli.Output
	namespace string
	cmdutil.Writing
	digest string
	kind   string
	from   valueFlags

	certificate certificateFlags
	registry    registryFlags
}

func newSecretSet(a *cmdutil.CLI) *cobra.Command {
	c := &secretSet{CLI: a}
	cmd := &cobra.Command{
		Use:   "set [AGENT] NAME",
		Short: "Create a secret or replace all its keys",
		Long: `Create a secret or replace all its keys. A key that you do not give is removed.

Every user of this machine can see a value of --from-literal in the list of processes. It also
stays in the shell's history. --from-file and --from-stdin do not expose values.

Apps that use the secret restart when its content changes and their spec says so: see deploy
--restart-on secrets.`,
		Example: `  pipeops-runner secret set shop web-env --from-stdin password < password.txt
  pipeops-runner secret set shop web-tls --type tls --cert web.pem --key web-key.pem
  pipeops-runner secret set shop pull --docker-server ghcr.io --docker-username bot --docker-password-stdin < token.txt
  pipeops-runner secret set shop web-flags --from-literal LOG_LEVEL=info`,
		Args:              cli.ExactArgs("AGENT", "NAME"),
		ValidArgsFunction: a.CompleteAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			spec, err := c.spec()
			if err != nil {
				return err
			}
			key := runnerapi.Key{Namespace: c.namespace, Name: args[1]}
			return a.On(cmd.Context(), args[0], func(ctx context.Context, t *cmdutil.Target) error { return c.run(ctx, t, key, spec) })
		},
	}
	c.out.Add(cmd)
	cmdutil.NamespaceFlag(cmd, &c.namespace)
	c.AddWriting(cmd)
	f := cmd.Flags()
	f.StringVar(&c.kind, "type", "Opaque", "type: Opaque, tls (kubernetes.io/tls) or docker (kubernetes.io/dockerconfigjson)")
	f.StringArrayVar(&c.from.literals, "from-literal", nil, "KEY=VALUE; may be repeated; visible in the list of processes")
	f.StringArrayVar(&c.from.files, "from-file", nil, "[KEY=]FILE; without KEY, the key is the file's name; may be repeated")
	f.StringVar(&c.from.stdin, "from-stdin", "", "KEY whose value is read from standard input")
	digestFlag(f, &c.digest, "secret")
	c.certificate.add(f)
	c.registry.add(f)
	return cli.Extra(cmd, "--from-literal")
}

func (c *secretSet) run(ctx context.Context, t *cmdutil.Target, key runnerapi.Key, spec runnerapi.SecretSpec) error {
	opts := c.Options()
	opts.Digest = c.digest
	secret, err := t.Secrets().Set(ctx, key, spec, opts)
	if err != nil {
		return cmdutil.At(t, key.String(), err)
	}
	if c.DryRun {
		c.Say("dry run: secret %s would be accepted; nothing was changed", key)
	}
	return c.out.Write(c.Out, secret, func(w io.Writer) { tables.Secrets(w, secret) })
}

// spec gathers the values. Its errors name keys and files, never values.
func (c *secretSet) spec() (runnerapi.SecretSpec, error) {
	if full, ok := shortTypes[strings.ToLower(c.kind)]; ok {
		c.kind = full
	}
	special := 0
	for _, given := range []bool{c.certificate.given(), c.registry.given(), len(c.from.literals)+len(c.from.files) > 0 || c.from.stdin != ""} {
		if given {
			special++
		}
	}
	switch {
	case special > 1:
		return runnerapi.SecretSpec{}, cli.Usage(errors.New("give either --from-…, or --cert and --key, or --docker-…"))
	case c.certificate.given():
		return c.certificate.spec(c.kind, c.In)
	case c.registry.given():
		return c.registry.spec(c.kind, c.In)
	}
	if len(c.from.literals) > 0 {
		c.Say("warning: values of --from-literal can be seen in the list of processes; --from-file and --from-stdin cannot")
	}
	v, err := c.from.gather(c.In)
	for _, key := range slices.Sorted(maps.Keys(v.text)) {
		if v.text[key] == "" {
			c.Say("warning: the value of %s is empty", key)
		}
	}
	return runnerapi.SecretSpec{Type: c.kind, Data: v.text, BinaryData: v.binary}, err
}
