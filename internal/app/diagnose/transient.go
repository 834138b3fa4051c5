package diagnose

import "regexp"

var (
	// late matches what a kubelet reports that has not read a Secret or ConfigMap yet. It retries
	// at once, and then reports the true cause, such as a Secret that does not exist.
	late = regexp.MustCompile(`(?i)failed to sync (secret|configmap) cache: timed out waiting for the condition` +
		`|object "[^"]+"/"[^"]+" not registered`)
	// rootCA matches what a kubelet reports in a new namespace. The cluster creates this config map
	// there, a moment after the namespace.
	rootCA = regexp.MustCompile(`(?i)configmap "kube-root-ca\.crt" not found`)
)

// passes reports whether a message of the kubelet is about what it or the cluster soon fixes.
func passes(message string) bool { return late.MatchString(message) || rootCA.MatchString(message) }
