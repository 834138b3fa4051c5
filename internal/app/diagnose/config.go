package diagnose

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

var (
	missingObject = regexp.MustCompile(`(?i)(secret|configmap) "([^"]+)" not found`)
	missingKey    = regexp.MustCompile(`(?i)couldn't find key (\S+) in (secret|configmap) (?:([^/\s]+)/)?(\S+)`)
)

// config finds what keeps the kubelet from making a container: a Secret, a
// ConfigMap or a key that is not there, or an image that wants to be root.
func config(c container, ev *Evidence) Finding {
	reason, message := c.waiting()
	// A kubelet under load reads Secrets and ConfigMaps late, which is not the App's fault.
	if reason != "CreateContainerConfigError" || late.MatchString(message) {
		return Finding{}
	}
	if m := missingKey.FindStringSubmatch(message); m != nil {
		return found(c.noKey(m[1], strings.ToLower(m[2]), m[4]))
	}
	if source, is := missing(message); is {
		return c.noSource(source, ev)
	}
	if strings.Contains(message, "runAsNonRoot") || strings.Contains(message, "non-root") {
		return found(c.root(message))
	}
	return found(c.diagnosis(runnerapi.CauseUnknown,
		c.what()+" cannot be configured: "+clip(message), c.events()))
}

func (c container) noObject(s Source) *runnerapi.Diagnosis {
	name := s.Name
	if s.Kind == secret {
		return c.diagnosis(runnerapi.CauseMissingSecret,
			fmt.Sprintf("secret %q, which the App refers to, does not exist in namespace %s", name, c.pod.Namespace),
			fmt.Sprintf("create secret %q in namespace %s, or correct the App's reference to it; the App then starts by itself", name, c.pod.Namespace))
	}
	return c.diagnosis(runnerapi.CauseMissingConfigMap,
		fmt.Sprintf("config map %q, which the App refers to, does not exist in namespace %s", name, c.pod.Namespace),
		fmt.Sprintf("create config map %q in namespace %s, or correct the App's reference to it; the App then starts by itself", name, c.pod.Namespace))
}

func (c container) noKey(key, kind, name string) *runnerapi.Diagnosis {
	if kind == "configmap" {
		kind = "config map"
	}
	return c.diagnosis(runnerapi.CauseMissingKey,
		fmt.Sprintf("%s %q has no key %q", kind, name, key),
		fmt.Sprintf("add key %q to %s %q, or correct the App's reference to it; the App then starts by itself", key, kind, name))
}

func (c container) root(message string) *runnerapi.Diagnosis {
	if strings.Contains(message, "non-numeric user") {
		return c.diagnosis(runnerapi.CauseRunsAsRoot,
			fmt.Sprintf("image %s names its user instead of giving a number, so Kubernetes cannot tell that it is not root", c.imageName()),
			"give the image's USER as a number (USER 10001), or that number as security.runAsUser; or allow root: "+runAsRoot)
	}
	return c.diagnosis(runnerapi.CauseRunsAsRoot,
		fmt.Sprintf("image %s runs as root, which is not allowed", c.imageName()),
		"allow it for this App: "+runAsRoot+"; or give the image a USER with a number other than 0 (USER 10001), or set security.runAsUser to one")
}

// runAsRoot is how an App is allowed to run as root.
const runAsRoot = "deploy it with --run-as-root (security.allowRoot)"
