package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// image finds what keeps the node from getting the image.
func image(c container, ev *Evidence) Finding {
	reason, message := c.waiting()
	switch reason {
	case "InvalidImageName":
		return found(c.diagnosis(runnerapi.CauseInvalidImage,
			fmt.Sprintf("%q is not an image reference", c.imageName()),
			"write image as registry/repository:tag, all but the tag in lower case"))
	case "ErrImagePull", "ImagePullBackOff", "RegistryUnavailable", "ImageInspectError", "SignatureValidationFailed":
		return found(c.pull(message, ev.Previous))
	case "ErrImageNeverPull":
		return found(c.diagnosis(runnerapi.CauseImageNotFound,
			fmt.Sprintf("image %s is not on the node, and pulling it is switched off", c.imageName()),
			"load the image into the node, or have what sets imagePullPolicy: Never leave that out"))
	}
	return Finding{}
}

func (c container) imageName() string {
	return cmp.Or(c.spec.Image, c.status.Image)
}

// pulls are the ways in which a pull fails, distinguished by the texts of containerd, CRI-O and
// registries. The order matters: "no match for platform in manifest: not found" is not a missing
// image. Docker Hub returns "repository does not exist or may require authorization" for both.
var pulls = []struct {
	says  []string
	cause runnerapi.Cause
	what  string
	fix   string
}{
	{
		[]string{"no match for platform", "no matching manifest", "no image found in manifest list", "no image found in image index"},
		runnerapi.CauseImagePullFailed, "has no build for this node's CPU architecture",
		"build the image for the nodes' architecture too (docker buildx build --platform), or use a tag that has it",
	},
	{
		[]string{"toomanyrequests", "rate limit", "429 Too Many Requests"},
		runnerapi.CauseImagePullFailed, "cannot be pulled now: the registry's rate limit is reached",
		"wait, or pull with an account: put its credentials into a dockerconfigjson secret and name it in imagePullSecrets",
	},
	{
		[]string{
			"pull access denied", "insufficient_scope", "unauthorized", "authorization failed", "authentication required",
			"401 Unauthorized", "403 Forbidden", "denied:", "no basic auth credentials",
		},
		runnerapi.CauseImagePullDenied, "may not be pulled: the registry wants credentials, or has no such repository",
		"correct image; for a private one put the registry's credentials into a dockerconfigjson secret and name it in imagePullSecrets",
	},
	{
		[]string{"not found", "manifest unknown", "name unknown", "NotFound", "404 Not Found"},
		runnerapi.CauseImageNotFound, "does not exist in its registry",
		"correct the name and tag in image, or push it (docker push)",
	},
	{
		[]string{"no such host", "server misbehaving", "Temporary failure in name resolution"},
		runnerapi.CauseImagePullFailed, "cannot be pulled: the name of its registry does not resolve on the node",
		"correct the registry's name in image, or the DNS of the node (kubectl get pod -o wide says which)",
	},
	{
		[]string{"x509:", "tls:", "server gave HTTP response to HTTPS client"},
		runnerapi.CauseImagePullFailed, "cannot be pulled: no trusted TLS connection to its registry",
		"correct the registry in image, give it a certificate that the nodes trust, or install its CA on the nodes",
	},
	{
		[]string{"connection refused", "i/o timeout", "deadline exceeded", "network is unreachable", "no route to host", "connection reset", "EOF"},
		runnerapi.CauseImagePullFailed, "cannot be pulled: its registry does not answer",
		"correct the registry in image, or see that it is up and that the nodes reach it (curl https://REGISTRY/v2/ on a node)",
	},
	{
		[]string{"no space left on device"},
		runnerapi.CauseImagePullFailed, "cannot be pulled: the node's disk is full",
		"free space on the node (kubectl get pod -o wide says which; crictl rmi --prune on it removes unused images), or add a node",
	},
}

// pull classifies a failed pull. A back-off message without a cause keeps the cause of the earlier
// failure.
func (c container) pull(message string, previous *runnerapi.Diagnosis) *runnerapi.Diagnosis {
	name := c.imageName()
	told := strings.ReplaceAll(message, name, "IMAGE") // an image's own name is not evidence
	for _, p := range pulls {
		if containsAny(told, p.says) {
			if names := c.pullSecrets(); p.cause == runnerapi.CauseImagePullDenied && names != "" {
				return c.diagnosis(p.cause, fmt.Sprintf("image %s may not be pulled: secret %s does not let it in, or there is no such repository", name, names),
					"correct the secret's registry, user and password (type kubernetes.io/dockerconfigjson), or the image's name")
			}
			return c.diagnosis(p.cause, fmt.Sprintf("image %s %s", name, p.what), p.fix)
		}
	}
	if previous != nil && isPull(previous.Cause) && strings.Contains(previous.Message, name+" ") {
		return previous.DeepCopy()
	}
	d := c.diagnosis(runnerapi.CauseImagePullFailed, fmt.Sprintf("image %s cannot be pulled", name),
		"correct image, or see that its registry is up and that the nodes reach it (curl https://REGISTRY/v2/ on a node)")
	if message != "" && !strings.HasPrefix(message, "Back-off") {
		d.Message += ": " + clip(message)
	}
	return d
}

// pullSecrets returns the secrets that the pod brings for registries.
func (c container) pullSecrets() string {
	names := make([]string, 0, len(c.pod.Spec.ImagePullSecrets))
	for _, s := range c.pod.Spec.ImagePullSecrets {
		names = append(names, s.Name)
	}
	return strings.Join(names, ", ")
}

func isPull(cause runnerapi.Cause) bool {
	return cause == runnerapi.CauseImageNotFound || cause == runnerapi.CauseImagePullDenied || cause == runnerapi.CauseImagePullFailed
}

func containsAny(s string, parts []string) bool {
	return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(s, part) })
}

// maxMessage bounds what is taken over from others' messages.
const maxMessage = 400

func clip(s string) string {
	return printable.Shorten(strings.TrimSpace(s), maxMessage)
}
