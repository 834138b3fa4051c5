package build

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/admission"
	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/source/git"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const letIn = "use a namespace for builds; the owner of the cluster makes one with deployments/build-rights.yaml (docs/deployer/builds.md)"

// admit refuses a namespace that is not the agent's.
func (c *Client) admit(ctx context.Context, namespace string) (*corev1.Namespace, error) {
	return admission.Namespace(ctx, c.scope(), namespace, c.readNamespace)
}

func (c *Client) scope() objectmeta.Scope {
	return objectmeta.Scope{Agent: c.opts.Namespace, Only: c.opts.Namespaces}
}

func (c *Client) readNamespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	return c.core.Namespaces().Get(ctx, name, metav1.GetOptions{})
}

// ready refuses what could not be built: before a Job is made, and with the field at fault.
func (c *Client) ready(ctx context.Context, namespace string, spec runnerapi.BuildSpec) error {
	ns, err := c.admit(ctx, namespace)
	if known, ok := errors.AsType[*problem.Error](err); ok && known.Code == runnerapi.CodeNamespaceNotManaged {
		known.Fix = letIn
	}
	if err != nil {
		return err
	}
	if ns.Labels[Allowed] != AllowedValue {
		return problem.Errorf(problem.Forbidden,
			letIn,
			"builds need more of a node than Apps do, and the owner of the cluster has not allowed them in namespace %s", namespace).WithField("path.namespace")
	}
	if c.opts.Image == "" {
		return runnerapi.NotSupported(
			"have the operator of the agent set PIPEOPS_BUILD_IMAGE to an image of rootless BuildKit, by its digest (docs/deployer/builds.md)",
			"the agent has no builder: its configuration names no image of one")
	}
	if refused := (git.Remote{URL: spec.Git.URL, Guard: c.opts.Guard}).CheckHost(); refused != nil {
		return refused.Problem().WithField("git.url")
	}
	for _, needed := range []struct {
		field, name string
		kind        corev1.SecretType
	}{
		{"git.credentials", spec.Git.Credentials, ""},
		{"pushCredentials", spec.PushCredentials, corev1.SecretTypeDockerConfigJson},
		{"pullCredentials", spec.PullCredentials, corev1.SecretTypeDockerConfigJson},
	} {
		if err := c.secret(ctx, namespace, needed.field, needed.name, needed.kind); err != nil {
			return err
		}
	}
	if spec.CA == nil {
		return nil
	}
	if spec.CA.Secret != "" {
		return c.certificates(ctx, namespace, spec.CA.Secret)
	}
	_, err = c.core.ConfigMaps(namespace).Get(ctx, spec.CA.ConfigMap, metav1.GetOptions{})
	return missing(err, "ca.configMap", "config map", spec.CA.ConfigMap)
}

func (c *Client) secret(ctx context.Context, namespace, field, name string, kind corev1.SecretType) error {
	if name == "" {
		return nil
	}
	s, err := c.core.Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return missing(err, field, "secret", name)
	}
	if kind != "" && s.Type != kind {
		return problem.Errorf(problem.Invalid, fmt.Sprintf("make a secret of type %s: pipeops-runner secret set AGENT NAME --docker-server …", kind),
			"secret %s has type %s", name, s.Type).WithField(field)
	}
	return nil
}

// certificates refuses a Secret that has anything but certificates where a build's steps can
// read it.
func (c *Client) certificates(ctx context.Context, namespace, name string) error {
	const field = "ca.secret"
	s, err := c.core.Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return missing(err, field, "secret", name)
	}
	if !onlyCertificates(s.Data[caKey]) {
		return problem.Errorf(problem.Invalid, "put certificates in PEM into its key "+caKey+", and nothing else; or use ca.configMap",
			"secret %s has no key %s with certificates alone, which the Dockerfile's steps could read", name, caKey).WithField(field)
	}
	return nil
}

// onlyCertificates reports whether a text is certificates in PEM, with nothing between them.
func onlyCertificates(text []byte) bool {
	found := false
	for text = bytes.TrimSpace(text); len(text) > 0; text = bytes.TrimSpace(text) {
		if !bytes.HasPrefix(text, []byte("-----BEGIN CERTIFICATE-----")) {
			return false
		}
		block, rest := pem.Decode(text)
		if block == nil || block.Type != "CERTIFICATE" || len(block.Headers) > 0 {
			return false
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return false
		}
		found, text = true, rest
	}
	return found
}

func missing(err error, field, kind, name string) error {
	if apierrors.IsNotFound(err) {
		return problem.Errorf(problem.Invalid, "make it first, in the namespace of the build", "there is no %s %s", kind, name).WithField(field)
	}
	return kubeproblem.From(err, "reading "+kind+" "+name)
}
