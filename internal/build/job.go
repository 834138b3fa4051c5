package build

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/build/step"
	"github.com/pipeops/pipeops-vm-agent/internal/egress"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/signature"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// The containers of a build's pod, which run one after the other.
const (
	fetchStage = "fetch"
	buildStage = "build"
	pushStage  = "push"
)

const (
	// builderID is the user and group of BuildKit's rootless image, which does not support others.
	builderID = 1000
	// stateDir is where that image keeps layers.
	stateDir = "/home/user/.local/share/buildkit"
	// startGrace is how long a pod may wait for a node, beyond the deadline.
	startGrace = 10 * time.Minute
	// caKey is the key of a Secret with certificates.
	caKey      = "ca.crt"
	toolMemory = "1Gi" // step.Fetch needs the most
	toolCPU    = "10m"
)

var (
	workMount  = corev1.VolumeMount{Name: "work", MountPath: step.Work}
	stateMount = corev1.VolumeMount{Name: "state", MountPath: stateDir}
	// commitMount is only for the tools: a Dockerfile's steps must not choose the image's tag.
	commitMount = corev1.VolumeMount{Name: "commit", MountPath: step.CommitDir}
	// volumeLimit bounds what a build takes of its node's disk.
	volumeLimit = resource.MustParse("20Gi")
	commitLimit = resource.MustParse("1Mi")
)

// jobTemplate makes the Jobs of builds. It makes no requests.
type jobTemplate struct {
	image      string // BuildKit's
	toolsImage string // the agent's own
	guard      egress.Guard
	signers    *signature.Signers // of the commit; nil if it need not be signed
}

func (o Options) jobTemplate() jobTemplate {
	return jobTemplate{image: o.Image, toolsImage: o.ToolsImage, guard: o.Guard}
}

// job returns the Job of one run.
func (t jobTemplate) job(key runnerapi.Key, spec runnerapi.BuildSpec, by runnerapi.Caller) (*batchv1.Job, error) {
	id, text, err := runID(spec)
	if err != nil {
		return nil, err
	}
	labels := objectmeta.Labels()
	labels[nameLabel] = key.Name
	deadline := int64(runnerapi.DefaultBuildDeadline / time.Second)
	if spec.DeadlineSeconds != nil {
		deadline = *spec.DeadlineSeconds
	}
	ttl := int32(runnerapi.DefaultBuildTTL / time.Second)
	if spec.TTLSeconds != nil {
		ttl = *spec.TTLSeconds
	}
	pod := t.pod(spec)
	// The pod's own deadline leaves the pod there, with its logs.
	pod.ActiveDeadlineSeconds = &deadline
	return &batchv1.Job{
		TypeMeta: metav1.TypeMeta{APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: "build-" + key.Name + "-" + id, Labels: labels,
			Annotations: map[string]string{specNote: string(text), objectmeta.ChangedBy: by.Runner, objectmeta.RequestID: by.RequestID},
		},
		Spec: batchv1.JobSpec{
			BackoffLimit: new(int32(0)), TTLSecondsAfterFinished: &ttl,
			ActiveDeadlineSeconds: new(deadline + int64(startGrace/time.Second)),
			Template:              corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod},
		},
	}, nil
}

func (t jobTemplate) pod(spec runnerapi.BuildSpec) corev1.PodSpec {
	return corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false),
		TerminationGracePeriodSeconds: new(int64(5)),
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: new(true), RunAsUser: new(int64(builderID)), RunAsGroup: new(int64(builderID)), FSGroup: new(int64(builderID)),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		InitContainers: []corev1.Container{t.fetch(spec), t.builder(spec)},
		Containers:     []corev1.Container{t.push(spec)},
		Volumes:        volumes(spec),
	}
}

// tool returns the container of a step that the agent's own program carries out. It has Kubernetes'
// restricted pod security.
func (t jobTemplate) tool(name string, spec runnerapi.BuildSpec, args ...string) corev1.Container {
	return corev1.Container{
		Name: name, Image: t.toolsImage, Command: append([]string{"/pipeops-agent", "build", name}, literal(args)...),
		Env:                    append([]corev1.EnvVar{{Name: "HOME", Value: "/"}}, trust(spec)...),
		VolumeMounts:           append([]corev1.VolumeMount{workMount}, trustMounts(spec)...),
		TerminationMessagePath: step.Termination, TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(toolCPU), corev1.ResourceMemory: resource.MustParse("32Mi")},
			Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(toolMemory)},
		},
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
	}
}

func (t jobTemplate) fetch(spec runnerapi.BuildSpec) corev1.Container {
	g := spec.Git
	args := slices.Concat([]string{
		"--url=" + g.URL, "--branch=" + g.Ref.Branch, "--tag=" + g.Ref.Tag, "--semver=" + g.Ref.Semver, "--commit=" + g.Ref.Commit, "--path=" + g.Path, "--secret=" + g.Credentials,
	}, guardFlags(t.guard), signerFlags(t.signers))
	container := t.tool(fetchStage, spec, args...)
	container.VolumeMounts = append(container.VolumeMounts, commitMount)
	if g.Credentials != "" {
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: "git", MountPath: step.GitSecret, ReadOnly: true})
	}
	return container
}

// guardFlags returns the flags that give the step the agent's guard as it is now.
func guardFlags(g egress.Guard) (flags []string) {
	for _, p := range g.Allowed {
		flags = append(flags, "--fetch-addresses="+p.String())
	}
	if hosts := g.Listed(); hosts.Patterns != nil {
		flags = append(flags, "--fetch-hosts="+strings.Join(hosts.Patterns, ","))
	}
	return flags
}

// signerFlags returns the flags by which the step checks the commit's signature.
func signerFlags(s *signature.Signers) (flags []string) {
	if s == nil {
		return nil
	}
	flags = []string{"--signers=" + s.Source}
	for _, k := range s.Keys {
		flags = append(flags, "--signer="+k.Text)
	}
	return flags
}

func (t jobTemplate) push(spec runnerapi.BuildSpec) corev1.Container {
	container := t.tool(pushStage, spec, "--image="+spec.Image)
	commit := commitMount
	commit.ReadOnly = true
	container.VolumeMounts = append(container.VolumeMounts, commit)
	if spec.PushCredentials != "" {
		container.Env = append(container.Env, corev1.EnvVar{Name: "DOCKER_CONFIG", Value: step.DockerFiles})
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: "push", MountPath: step.DockerFiles, ReadOnly: true})
	}
	return container
}

// builder returns the container of rootless BuildKit
// (https://github.com/moby/buildkit/blob/master/docs/rootless.md). It needs a user namespace, and
// mounts in it, which the usual seccomp and AppArmor profiles forbid. It also needs newuidmap,
// which needs the two capabilities. Outside of its user namespace it has none.
func (t jobTemplate) builder(spec runnerapi.BuildSpec) corev1.Container {
	container := corev1.Container{
		Name: buildStage, Image: t.image, Command: []string{"buildctl-daemonless.sh"}, Args: literal(buildctl(spec)),
		Env: append([]corev1.EnvVar{
			// A pod's /proc is masked, so that a step cannot have one of its own.
			{Name: "BUILDKITD_FLAGS", Value: "--oci-worker-no-process-sandbox"},
			{Name: "BUILDCTL_CONNECT_RETRIES_MAX", Value: "40"}, // half a minute
		}, trust(spec)...),
		VolumeMounts:             append([]corev1.VolumeMount{workMount, stateMount}, trustMounts(spec)...),
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		Resources:                corev1.ResourceRequirements{Requests: amounts(spec.Resources.Requests), Limits: amounts(spec.Resources.Limits)},
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(true), // by newuidmap
			SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined},
			AppArmorProfile:          &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined},
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"SETUID", "SETGID"}},
		},
	}
	if spec.PullCredentials != "" {
		container.Env = append(container.Env, corev1.EnvVar{Name: "DOCKER_CONFIG", Value: step.DockerFiles})
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: "pull", MountPath: step.DockerFiles, ReadOnly: true})
	}
	return container
}

// literal keeps the kubelet from expanding variables in arguments.
func literal(args []string) []string {
	out := make([]string, len(args))
	for i, a := range args {
		out[i] = strings.ReplaceAll(a, "$", "$$")
	}
	return out
}

func buildctl(spec runnerapi.BuildSpec) []string {
	file := spec.File()
	args := []string{
		"build", "--progress=plain", "--frontend=dockerfile.v0", "--local=context=" + step.Context,
		"--local=dockerfile=" + path.Join(step.Context, path.Dir(file)), "--opt=filename=" + path.Base(file),
	}
	if spec.Target != "" {
		args = append(args, "--opt=target="+spec.Target)
	}
	for _, name := range slices.Sorted(maps.Keys(spec.Args)) {
		args = append(args, "--opt=build-arg:"+name+"="+spec.Args[name])
	}
	return append(args, "--output=type=oci,tar=false,dest="+step.Image)
}

// trust makes Go programs, including BuildKit, trust further CAs beside the system's.
func trust(spec runnerapi.BuildSpec) []corev1.EnvVar {
	if spec.CA == nil {
		return nil
	}
	return []corev1.EnvVar{{Name: "SSL_CERT_DIR", Value: strings.Join([]string{"/etc/ssl/certs", step.CAFiles}, ":")}}
}

func trustMounts(spec runnerapi.BuildSpec) []corev1.VolumeMount {
	if spec.CA == nil {
		return nil
	}
	return []corev1.VolumeMount{{Name: "ca", MountPath: step.CAFiles, ReadOnly: true}}
}

func volumes(spec runnerapi.BuildSpec) []corev1.Volume {
	dir := corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: &volumeLimit}}
	all := []corev1.Volume{
		{Name: workMount.Name, VolumeSource: dir}, {Name: stateMount.Name, VolumeSource: dir},
		{Name: commitMount.Name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: &commitLimit}}},
	}
	add := func(name, secret string, items ...corev1.KeyToPath) {
		if secret != "" {
			all = append(all, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret, Items: items}}})
		}
	}
	docker := corev1.KeyToPath{Key: corev1.DockerConfigJsonKey, Path: "config.json"}
	add("git", spec.Git.Credentials)
	add("push", spec.PushCredentials, docker)
	add("pull", spec.PullCredentials, docker)
	if ca := spec.CA; ca != nil {
		add("ca", ca.Secret, corev1.KeyToPath{Key: caKey, Path: caKey}) // a Dockerfile's steps can read it
		if ca.ConfigMap != "" {
			all = append(all, corev1.Volume{Name: "ca", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: ca.ConfigMap},
			}}})
		}
	}
	return all
}

func amounts(a runnerapi.ResourceAmounts) corev1.ResourceList {
	list := corev1.ResourceList{}
	for name, text := range map[corev1.ResourceName]string{corev1.ResourceCPU: a.CPU, corev1.ResourceMemory: a.Memory} {
		if q, err := resource.ParseQuantity(cmp.Or(text, "-")); err == nil { // it was validated
			list[name] = q
		}
	}
	return list
}
