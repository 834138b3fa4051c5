package policy

import (
	"fmt"
	"path"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
)

// repositoryOf returns the registry and repository that a container runtime would pull an image
// from: nginx is docker.io/library/nginx.
func repositoryOf(image string) (string, error) {
	ref, err := name.ParseReference(image, name.WeakValidation)
	if err != nil {
		return "", err
	}
	repository := dockerHub(ref.Context().Name())
	if path.Clean(repository) != repository { // a registry may follow a .. in it
		return "", fmt.Errorf("%q is not a plain path", repository)
	}
	return repository, nil
}

// dockerHub gives Docker Hub one of its names.
func dockerHub(repository string) string {
	if rest, ok := strings.CutPrefix(repository, name.DefaultRegistry+"/"); ok {
		return "docker.io/" + rest
	}
	return repository
}

// checkSource returns what is wrong with an entry of images: a registry, or a repository with its
// registry.
func checkSource(entry string) error {
	host, repository, _ := strings.Cut(entry, "/")
	if !strings.ContainsAny(host, ".:") && host != "localhost" {
		return fmt.Errorf("%q does not begin with a registry, as docker.io/library/nginx does", entry)
	}
	if _, err := name.NewRegistry(host); err != nil || entry != strings.ToLower(entry) {
		return fmt.Errorf("%q does not begin with a registry's name", entry)
	}
	if repository == "" {
		if strings.HasSuffix(entry, "/") {
			return fmt.Errorf("%q ends with a slash", entry)
		}
		return nil
	}
	if _, err := name.NewRepository(entry); err != nil || strings.HasSuffix(entry, "/") || strings.ContainsAny(repository, ":@*") {
		return fmt.Errorf("%q is not a repository: neither a tag nor a wildcard belongs to it", entry)
	}
	return nil
}
