package runnerapi

import (
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/limit"
)

// Annotations by which ingress-nginx and F5's controller keep visitors out, as their user guides
// have them (NGINX Configuration, Annotations; Advanced configuration with Annotations).
const (
	nginx               = "nginx.ingress.kubernetes.io/"
	annotationAllow     = nginx + "allowlist-source-range"
	annotationWhitelist = nginx + "whitelist-source-range"
	annotationAuthType  = nginx + "auth-type"
	annotationAuth      = nginx + "auth-secret"
	annotationAuthForm  = nginx + "auth-secret-type"
	annotationF5Auth    = "nginx.org/basic-auth-secret"
)

// unmet are annotations that may keep visitors out in ways that the gateway does not have.
var unmet = []string{
	nginx + "auth-url", nginx + "auth-tls-secret", nginx + "denylist-source-range", nginx + "satisfy",
	"nginx.org/policies", "nginx.com/jwt-key", "traefik.ingress.kubernetes.io/router.middlewares",
}

// readVisitors returns whom annotations let in, or why that cannot be kept to.
func readVisitors(annotations map[string]string) (v *Visitors, why string) {
	for _, name := range unmet {
		if annotations[name] != "" {
			return nil, "the gateway does not carry the annotation " + name + ", which may keep visitors out; remove it, or use ingress.visitors of an App"
		}
	}
	v = &Visitors{}
	for _, name := range []string{annotationAllow, annotationWhitelist} {
		for text := range strings.SplitSeq(annotations[name], ",") {
			if text = strings.TrimSpace(text); text == "" {
				continue
			}
			n, err := limit.ParseNetwork(text)
			if err != nil {
				return nil, "annotation " + name + ": " + err.Error()
			}
			v.AllowFrom = append(v.AllowFrom, n.String())
		}
	}
	v.BasicAuthSecret = annotations[annotationF5Auth]
	if kind, set := annotations[annotationAuthType]; set {
		v.BasicAuthSecret = annotations[annotationAuth]
		form := annotations[annotationAuthForm]
		switch {
		case kind != "basic":
			return nil, "the gateway has no sign-in of the annotation " + annotationAuthType + " but basic"
		case form != "" && form != "auth-file":
			return nil, "the gateway reads no Secret of the annotation " + annotationAuthForm + " but auth-file"
		case v.BasicAuthSecret == "" || strings.Contains(v.BasicAuthSecret, "/"):
			return nil, "annotation " + annotationAuth + ": name a Secret of the namespace"
		}
	}
	if v.empty() {
		return nil, ""
	}
	return v, ""
}
