package ingress

import (
	"strconv"
	"time"
)

const (
	// AnnotationAnswer on an Ingress or an HTTPRoute is how long the App may take to begin its
	// answer, as "90s" or "5m". An App has it among the annotations of its ingress.
	AnnotationAnswer = "pipeops.io/answer-timeout"
	// annotationNginx is the same for ingress-nginx, in seconds; charts have it.
	annotationNginx = "nginx.ingress.kubernetes.io/proxy-read-timeout"

	minAnswer, maxAnswer = time.Second, time.Hour
)

// answerWithin returns how long an App may take to begin its answer, in whole seconds; zero if the
// annotations do not say so.
func answerWithin(annotations map[string]string) time.Duration {
	within, err := time.ParseDuration(annotations[AnnotationAnswer])
	if err != nil {
		seconds, err := strconv.Atoi(annotations[annotationNginx])
		if err != nil || seconds <= 0 || seconds > int(maxAnswer/time.Second) {
			return 0
		}
		within = time.Duration(seconds) * time.Second
	}
	if within < minAnswer || within > maxAnswer {
		return 0
	}
	return within.Truncate(time.Second)
}
