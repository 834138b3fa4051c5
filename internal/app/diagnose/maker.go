package diagnose

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Maker is a custom resource whose operator should make a Secret, such as an ExternalSecret, and
// the reason why it does not.
type Maker struct {
	Kind, Name, Message string
}

// makerKind is true for kinds of objects from which operators make Secrets: ExternalSecret,
// VaultStaticSecret, SealedSecret and Certificate are some.
var makerKind = regexp.MustCompile(`Secret$|^Certificate$`)

// Makes reports whether an object of this kind and API version may be what a Secret is made from.
func Makes(apiVersion, kind string) bool {
	group, _, named := strings.Cut(apiVersion, "/")
	return named && strings.Contains(group, ".") && makerKind.MatchString(kind)
}

// Source is a Secret or a ConfigMap that pods take environment or files from.
type Source struct {
	Kind string // secret or configmap
	Name string
}

// MissingSources returns those that did not exist when the kubelet looked for them last. The
// evidence has to have the events about the pods' volumes.
func MissingSources(ev *Evidence) []Source {
	var all []Source
	for _, pod := range ev.Pods {
		if !alive(pod) {
			continue
		}
		messages := []string{ev.Mounts[pod.UID]}
		for _, c := range containersOf(pod) {
			_, message := c.waiting()
			messages = append(messages, message)
		}
		for _, message := range messages {
			if source, is := missing(message); is && !slices.Contains(all, source) {
				all = append(all, source)
			}
		}
	}
	return all
}

// missing returns the Secret or ConfigMap that a message of the kubelet calls missing.
func missing(message string) (Source, bool) {
	if m := missingObject.FindStringSubmatch(message); m != nil {
		return Source{strings.ToLower(m[1]), m[2]}, true
	}
	return Source{}, false
}

// noSource is the finding about one that the kubelet calls missing.
func (c container) noSource(s Source, ev *Evidence) Finding {
	if ev.There[s] {
		return Finding{Waiting: fmt.Sprintf("the kubelet to read %s %s, which was created since", s.Kind, s.Name), Recheck: lookAgain}
	}
	if s.Kind != secret {
		return found(c.noObject(s))
	}
	if maker, known := ev.Makers[s.Name]; known {
		return Finding{Diagnosis: unmadeSecret(c.pod, s.Name, maker), Recheck: lookAgain}
	}
	return Finding{Diagnosis: c.noObject(s), Recheck: lookAgain} // its operator may fail
}

const secret = "secret"

// unmadeSecret is the diagnosis of a Secret that an operator cannot make.
func unmadeSecret(pod *corev1.Pod, secret string, by Maker) *runnerapi.Diagnosis {
	kind := strings.ToLower(by.Kind)
	return &runnerapi.Diagnosis{
		Cause: runnerapi.CauseMissingSecret, Object: kind + "/" + by.Name,
		Message: fmt.Sprintf("secret %q, which the App refers to, does not exist in namespace %s: %s %s cannot make it: %s",
			secret, pod.Namespace, by.Kind, by.Name, clip(by.Message)),
		Fix: fmt.Sprintf("correct %s %s or what it reads (kubectl -n %s describe %s %s); the App then starts by itself",
			by.Kind, by.Name, pod.Namespace, kind, by.Name),
	}
}
