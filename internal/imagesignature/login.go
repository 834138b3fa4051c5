package imagesignature

import (
	"context"
	"encoding/json"
	"path"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
)

// login returns the login for an image's registry, of the first pull secret that has one. A Secret
// names the registries that its logins are for.
func (v *Verifier) login(ctx context.Context, ref name.Digest, r Request) (authn.Authenticator, error) {
	for _, secret := range r.PullSecrets {
		text, err := v.config.Secret(ctx, r.Namespace, secret)
		if err != nil {
			return nil, unavailable(ref, "the pull secret "+secret+" cannot be read", "send it again")
		}
		if login, ok := loginIn(text, ref); ok {
			return authn.FromConfig(login), nil
		}
	}
	return authn.Anonymous, nil
}

// loginIn returns the login of a .dockerconfigjson whose entry is the most exact for an image.
func loginIn(text []byte, ref name.Digest) (login authn.AuthConfig, found bool) {
	var config struct {
		Auths map[string]json.RawMessage `json:"auths"`
	}
	if json.Unmarshal(text, &config) != nil {
		return login, false
	}
	best := -1
	for entry, text := range config.Auths {
		var auth authn.AuthConfig
		at := plainEntry(entry)
		if len(at) > best && entryFor(at, ref) && json.Unmarshal(text, &auth) == nil {
			best, login, found = len(at), auth, true
		}
	}
	return login, found
}

// plainEntry returns an entry as HOST or HOST/PATH: older ones are URLs.
func plainEntry(entry string) string {
	entry = strings.TrimPrefix(strings.TrimPrefix(entry, "https://"), "http://")
	entry = strings.TrimSuffix(entry, "/")
	for _, version := range []string{"/v1", "/v2"} {
		entry = strings.TrimSuffix(entry, version)
	}
	if entry == "docker.io" || entry == "registry-1.docker.io" {
		return name.DefaultRegistry
	}
	return entry
}

// entryFor reports whether an entry is for an image, as the kubelet matches them: each label of the
// host may have wildcards, and a path stands for what is below it.
func entryFor(entry string, ref name.Digest) bool {
	host, prefix, _ := strings.Cut(entry, "/")
	labels, wanted := strings.Split(host, "."), strings.Split(ref.Context().RegistryStr(), ".")
	if len(labels) != len(wanted) {
		return false
	}
	for i, label := range labels {
		if ok, err := path.Match(label, wanted[i]); !ok || err != nil {
			return false
		}
	}
	repository := ref.Context().RepositoryStr()
	return prefix == "" || repository == prefix || strings.HasPrefix(repository, prefix+"/")
}
