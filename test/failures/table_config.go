package failures

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// unconfigured is a container that the kubelet cannot make.
var unconfigured = Waits("CreateContainerConfigError")

// aConfigMap is in each namespace.
const aConfigMap = "kube-root-ca.crt"

func ofConfiguration(i Images) []Failure {
	env := func(e runnerapi.EnvVar) runnerapi.AppSpec {
		return with(runs(i.Hello), func(s *runnerapi.AppSpec) { s.Env = []runnerapi.EnvVar{e} })
	}
	from := func(e runnerapi.EnvSource) runnerapi.AppSpec {
		return with(runs(i.Hello), func(s *runnerapi.AppSpec) { s.EnvFrom = []runnerapi.EnvSource{e} })
	}
	file := func(f runnerapi.File) runnerapi.AppSpec {
		return with(runs(i.Hello), func(s *runnerapi.AppSpec) { s.Files = []runnerapi.File{f} })
	}
	unmounted := Says(1, "FailedMount")
	return []Failure{
		{
			Name: "no-secret", Spec: from(runnerapi.EnvSource{Secret: "nowhere"}), Signal: unconfigured,
			Cause: runnerapi.CauseMissingSecret, Object: "pod/", Message: `secret "nowhere"`, Fix: `create secret "nowhere"`,
		},
		{
			Name: "daemon-no-secret", Spec: as(runnerapi.TypeDaemonSet, from(runnerapi.EnvSource{Secret: "nowhere"})), Signal: unconfigured,
			Cause: runnerapi.CauseMissingSecret, Object: "pod/", Message: `secret "nowhere"`, Fix: `create secret "nowhere"`,
		},
		{
			Name: "no-secret-of-key", Spec: env(runnerapi.EnvVar{Name: "A", Secret: &runnerapi.KeyRef{Name: "nowhere", Key: "url"}}), Signal: unconfigured,
			Cause: runnerapi.CauseMissingSecret, Object: "pod/", Message: `secret "nowhere"`, Fix: `create secret "nowhere"`,
		},
		{
			Name: "no-secret-key", Spec: env(runnerapi.EnvVar{Name: "A", Secret: &runnerapi.KeyRef{Name: wrongLogin, Key: "url"}}), Signal: unconfigured,
			Cause: runnerapi.CauseMissingKey, Object: "pod/", Message: `secret "` + wrongLogin + `" has no key "url"`, Fix: `add key "url"`,
		},
		{
			Name: "no-config", Spec: from(runnerapi.EnvSource{ConfigMap: "nowhere"}), Signal: unconfigured,
			Cause: runnerapi.CauseMissingConfigMap, Object: "pod/", Message: `config map "nowhere"`, Fix: `create config map "nowhere"`,
		},
		{
			Name: "no-key", Spec: env(runnerapi.EnvVar{Name: "A", ConfigMap: &runnerapi.KeyRef{Name: aConfigMap, Key: "nowhere"}}), Signal: unconfigured,
			Cause: runnerapi.CauseMissingKey, Object: "pod/", Message: `config map "` + aConfigMap + `" has no key "nowhere"`, Fix: `add key "nowhere"`,
		},
		{
			Name: "no-file", Spec: file(runnerapi.File{Path: "/etc/certs", Secret: &runnerapi.FileRef{Name: "certs"}}), Signal: unmounted,
			Cause: runnerapi.CauseMissingSecret, Object: "pod/", Message: `secret "certs"`, Fix: `create secret "certs"`,
		},
		{
			Name: "no-config-file", Spec: file(runnerapi.File{Path: "/etc/web", ConfigMap: &runnerapi.FileRef{Name: "nowhere"}}), Signal: unmounted,
			Cause: runnerapi.CauseMissingConfigMap, Object: "pod/", Message: `config map "nowhere"`, Fix: `create config map "nowhere"`,
		},
		{
			Name:   "no-file-of-key",
			Spec:   file(runnerapi.File{Path: "/etc/web.yaml", ConfigMap: &runnerapi.FileRef{Name: aConfigMap, Key: "web.yaml"}}),
			Signal: unmounted, Cause: runnerapi.CauseMissingKey, Object: "pod/",
			Message: `config map "` + aConfigMap + `" has no key "web.yaml"`, Fix: `add key "web.yaml"`,
		},
		{
			Name: "no-such-path", Spec: file(runnerapi.File{Path: "/etc/web", ConfigMap: &runnerapi.FileRef{Name: aConfigMap}}),
			NoApp:  "an App's paths have no variables",
			Change: pod(func(p *corev1.PodSpec) { p.Containers[0].VolumeMounts[0].SubPathExpr = "$(NOWHERE)" }), Signal: unconfigured,
			Cause: runnerapi.CauseUnknown, Object: "pod/", Message: "cannot be configured", Fix: "describe pod",
		},
	}
}
