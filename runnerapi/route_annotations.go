package runnerapi

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
)

const (
	// AnnotationAnswer on an Ingress or an HTTPRoute is how long the App may take to begin its
	// answer, as "90s" or "5m". An App has it among the annotations of its ingress.
	AnnotationAnswer = "pipeops.io/answer-timeout"
	// annotationNginx is the same for ingress-nginx, in seconds; charts have it.
	annotationNginx = "nginx.ingress.kubernetes.io/proxy-read-timeout"
	// AnnotationMode on an Ingress keeps its hosts in tunnel mode, with the value "tunnel".
	AnnotationMode = "pipeops.io/gateway-mode"

	minAnswer, maxAnswer = time.Second, time.Hour
)

// RouteAnnotations are what the annotations of an Ingress or an HTTPRoute say about its routes.
type RouteAnnotations struct {
	Within   time.Duration // for the App to begin its answer, in whole seconds; zero is the default
	Tunnel   bool          // no requests through the cluster's own load balancer
	Warnings []string      // annotations that are ignored, each with its value and the fix
	Visitors *Visitors     // whom to let in; nil for everyone
	// Unmet is why the routes are not served: an annotation keeps visitors out in a way that the
	// gateway does not have. Empty if there is none.
	Unmet string
}

// ReadRouteAnnotations returns what annotations say about routes.
func ReadRouteAnnotations(annotations map[string]string) (r RouteAnnotations) {
	ignored := func(name, fix string) {
		value := annotations[name]
		if len(value) > shown {
			value = value[:shown]
		}
		r.Warnings = append(r.Warnings, fmt.Sprintf("annotation %s: %q is ignored: %s", name, value, fix))
	}
	for _, name := range slices.Sorted(maps.Keys(annotations)) {
		switch text := annotations[name]; name {
		case AnnotationMode:
			if r.Tunnel = text == string(RouteTunnel); !r.Tunnel {
				ignored(name, "write tunnel, or remove the annotation")
			}
		case annotationNginx:
			seconds, err := strconv.Atoi(text)
			within := time.Duration(seconds) * time.Second
			if err != nil || seconds > int(maxAnswer/time.Second) || within < minAnswer {
				ignored(name, "write seconds from 1 to 3600, or set "+AnnotationAnswer)
			} else {
				r.Within = within
			}
		case AnnotationAnswer: // comes after that of ingress-nginx, and wins
			within, err := time.ParseDuration(text)
			if err != nil || within < minAnswer || within > maxAnswer {
				ignored(name, "write a duration such as 90s, from 1s to 1h")
			} else {
				r.Within = within.Truncate(time.Second)
			}
		}
	}
	r.Visitors, r.Unmet = readVisitors(annotations)
	return r
}
