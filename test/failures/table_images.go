package failures

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// unpulled is an image that the kubelet did not get.
var unpulled = Waits("ErrImagePull", "ImagePullBackOff")

func ofImages(i Images) []Failure {
	missing := runs("apps.test/no-such-image:1")
	return []Failure{
		{
			Name: "no-image", Spec: missing, Signal: unpulled,
			Cause: runnerapi.CauseImageNotFound, Object: "pod/", Message: "apps.test/no-such-image:1 does not exist", Fix: "docker push",
		},
		{
			Name: "set-no-image", Spec: as(runnerapi.TypeStatefulSet, missing), Signal: unpulled,
			Cause: runnerapi.CauseImageNotFound, Object: "pod/set-no-image-0", Message: "apps.test/no-such-image:1 does not exist", Fix: "docker push",
		},
		{
			Name: "job-no-image", Spec: once(missing), Signal: unpulled,
			Cause: runnerapi.CauseImageNotFound, Object: "pod/", Message: "apps.test/no-such-image:1 does not exist", Fix: "docker push",
		},
		{
			Name: "private-image", Spec: runs("apps.test/private/web:1"), Signal: unpulled,
			Cause: runnerapi.CauseImagePullDenied, Object: "pod/", Message: "wants credentials", Fix: "imagePullSecrets",
		},
		{
			Name:   "wrong-login",
			Spec:   with(runs("apps.test/private/web:1"), func(s *runnerapi.AppSpec) { s.ImagePullSecrets = []string{wrongLogin} }),
			Signal: unpulled, Cause: runnerapi.CauseImagePullDenied, Object: "pod/", Message: "secret " + wrongLogin + " does not let it in",
			Fix: "correct the secret's registry, user and password",
		},
		{
			Name: "bad-image", Spec: runs("Apps.Test/UPPER"), Signal: Waits("InvalidImageName"),
			Cause: runnerapi.CauseInvalidImage, Object: "pod/", Message: "is not an image reference", Fix: "write image as",
		},
		{
			Name: "foreign-image", Spec: runs(i.Foreign), Signal: unpulled,
			Cause: runnerapi.CauseImagePullFailed, Object: "pod/", Message: "has no build for this node's CPU architecture", Fix: "--platform",
		},
		{
			Name: "never-pulled", Spec: missing, NoApp: "an App has no pull policy",
			Change: pod(func(p *corev1.PodSpec) { p.Containers[0].ImagePullPolicy = corev1.PullNever }), Signal: Waits("ErrImageNeverPull"),
			Cause: runnerapi.CauseImageNotFound, Object: "pod/", Message: "is not on the node, and pulling it is switched off", Fix: "imagePullPolicy",
		},
		{
			Name: "root-image", Spec: runs(i.Root), Signal: unconfigured,
			Cause: runnerapi.CauseRunsAsRoot, Object: "pod/", Message: "runs as root", Fix: "runAsUser",
		},
		{
			Name: "named-user", Spec: runs(i.Named), Signal: unconfigured,
			Cause: runnerapi.CauseRunsAsRoot, Object: "pod/", Message: "names its user instead of giving a number", Fix: "runAsUser",
		},
	}
}
