package kube

import (
	"cmp"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/decode"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// checkSecret refuses what its type would not work with, and returns all values as bytes. No error
// of it holds a value.
func checkSecret(spec *runnerapi.SecretSpec) (map[string][]byte, error) {
	spec.Type = cmp.Or(spec.Type, string(corev1.SecretTypeOpaque))
	if errs := spec.Validate(); len(errs) > 0 {
		p := invalid(errs[0].Field, "correct the field", errs[0].Message)
		if len(errs) > 1 {
			p.Fields = errs
		}
		return nil, p
	}
	data := maps.Clone(spec.BinaryData)
	if data == nil {
		data = map[string][]byte{}
	}
	for key, value := range spec.Data {
		data[key] = []byte(value)
	}
	return data, checkType(corev1.SecretType(spec.Type), data)
}

func checkType(kind corev1.SecretType, data map[string][]byte) error {
	switch kind {
	case corev1.SecretTypeOpaque:
		return nil
	case corev1.SecretTypeTLS:
		return checkTLS(data)
	case corev1.SecretTypeDockerConfigJson:
		return checkDockerConfig(data)
	}
	return invalid("type", "use Opaque, kubernetes.io/tls or kubernetes.io/dockerconfigjson", fmt.Sprintf("type %q is not supported", kind))
}

func checkTLS(data map[string][]byte) error {
	for _, key := range []string{corev1.TLSCertKey, corev1.TLSPrivateKeyKey} {
		if len(data[key]) == 0 {
			return invalid("data."+key, "give the certificate as tls.crt and its key as tls.key, both in PEM", "a TLS secret needs the key "+key)
		}
	}
	if _, err := tls.X509KeyPair(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey]); err != nil {
		return invalid("data."+corev1.TLSCertKey, "give a certificate and its own private key, both in PEM",
			"the certificate and the key do not work together: "+err.Error())
	}
	return nil
}

func checkDockerConfig(data map[string][]byte) error {
	const key = corev1.DockerConfigJsonKey
	var config struct {
		Auths map[string]json.RawMessage `json:"auths"`
	}
	if err := decode.Text.JSON(data[key], &config); err != nil || len(config.Auths) == 0 { // err would quote the value
		return invalid("data."+key, `give the content of a docker config.json: {"auths": {"REGISTRY": {...}}}`,
			"a dockerconfigjson secret needs the key "+key+" with registries under auths")
	}
	return nil
}

func invalid(field, fix, detail string) *problem.Error {
	return problem.Errorf(problem.Invalid, fix, "%s", detail).WithField(field)
}
