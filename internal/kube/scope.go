package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// maxResources bounds the list of a group's resources, in bytes.
	maxResources = 4 << 20
	// scopeAge is how long a list is kept: a definition may be made again with another scope.
	scopeAge = time.Minute
	// maxScopes is how many groups' lists are kept.
	maxScopes = 512
)

// scopes are which resources of which group and version are in namespaces.
type scopes struct {
	mu    sync.Mutex
	known map[string]scope
}

type scope struct {
	namespaced map[string]bool
	read       time.Time
}

// Namespaced implements backend.KubernetesAPI.
func (a *APIServer) Namespaced(ctx context.Context, group, version, resource string) (bool, error) {
	path := "api/" + version
	if group != "" {
		path = "apis/" + group + "/" + version
	}
	namespaced, known := a.scopes.find(path, resource)
	if known {
		return namespaced, nil
	}
	listed, err := a.resources(ctx, path)
	if err != nil {
		return false, err
	}
	a.scopes.keep(path, listed)
	namespaced, known = listed[resource]
	return namespaced || !known, nil
}

func (s *scopes) find(path, resource string) (namespaced, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list, known := s.known[path]
	if !known || time.Since(list.read) > scopeAge {
		return false, false
	}
	namespaced, known = list.namespaced[resource]
	return namespaced, known
}

func (s *scopes) keep(path string, namespaced map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil || len(s.known) >= maxScopes {
		s.known = map[string]scope{}
	}
	s.known[path] = scope{namespaced: namespaced, read: time.Now()}
}

// resources asks the API server which resources of a group there are. A group that is not
// there has none.
func (a *APIServer) resources(ctx context.Context, path string) (map[string]bool, error) {
	target, transport, err := a.APIServer()
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, target.JoinPath(path).String(), nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json")
	resp, err := transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode == http.StatusNotFound {
		return nil, nil
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the API server lists no resources of %s: %s", path, resp.Status)
	}
	var list metav1.APIResourceList
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxResources)).Decode(&list); err != nil {
		return nil, fmt.Errorf("read the resources of %s: %w", path, err)
	}
	namespaced := make(map[string]bool, len(list.APIResources))
	for _, resource := range list.APIResources {
		namespaced[resource.Name] = resource.Namespaced
	}
	return namespaced, nil
}
