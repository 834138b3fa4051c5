package attackers

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// repositories is the policy of who has charts and sources from outside: a Runner may bring these
// kinds, and no others.
const repositories = `rules:
  - name: repositories
    commands: ["*", put-release, delete-release, put-source, apply-manifests]
    kinds: [ConfigMap, Service, Deployment.apps, Job.batch, Pod]
`

// outside is a hostile server on this machine, of plain HTTP. Each attempt has a folder.
type outside struct {
	URL string

	mu       sync.Mutex
	attempts map[string]http.HandlerFunc
}

// serve starts a server at the address that the cluster reaches.
func serve(t *testing.T) *outside {
	t.Helper()
	o := &outside{attempts: map[string]http.HandlerFunc{}}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(sys.HostIP(), "0"))
	require.NoError(t, err)
	server := &http.Server{Handler: o, ReadHeaderTimeout: time.Minute}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		assert.NoError(t, server.Close())
		assert.ErrorIs(t, <-done, http.ErrServerClosed)
	})
	o.URL = "http://" + listener.Addr().String()
	return o
}

// ServeHTTP implements http.Handler: the first segment of a path names the attempt.
func (o *outside) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	folder, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	o.mu.Lock()
	handler := o.attempts[folder]
	o.mu.Unlock()
	if handler == nil {
		http.NotFound(w, r)
		return
	}
	r.URL.Path = "/" + rest
	handler(w, r)
}

// add gives an attempt a folder, and returns its URL.
func (o *outside) add(name string, h http.HandlerFunc) string {
	folder := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(name))
	o.mu.Lock()
	defer o.mu.Unlock()
	o.attempts[folder] = h
	return o.URL + "/" + folder
}

// thief hears all that comes to it.
func (s *scene) thief(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(io.LimitReader(r.Body, maxHeard))
	user, password, _ := r.BasicAuth()
	s.hear("a thief's server", fmt.Appendf(body, "\n%s %s\n%v\n%s:%s", r.Method, r.URL, r.Header, user, password))
	http.Error(w, "thank you", http.StatusNotFound)
}

// enforceBaseline has the namespace enforce the baseline of pod security, as
// docs/contributing/attacks.md has its owner do where manifests and charts are let in.
func enforceBaseline(t *testing.T) {
	t.Helper()
	label := func(ctx context.Context, value string) error {
		_, err := sys.Cluster.Kubectl(ctx, "label", "--overwrite", "namespace", production, "pod-security.kubernetes.io/enforce"+value)
		return err
	}
	require.NoError(t, label(t.Context(), "=baseline"))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		defer cancel()
		assert.NoError(t, clearWorkloads(ctx))
		assert.NoError(t, label(ctx, "-"))
	})
}

// clearWorkloads deletes what charts and manifests have brought: its controllers would go on trying
// once nothing enforces the baseline, in the midst of the next attacker's attempts.
func clearWorkloads(ctx context.Context) error {
	args := []string{"-n", production, "delete", "--ignore-not-found", "--cascade=foreground", "--wait"}
	for _, kind := range []string{"deployments.apps", "statefulsets.apps", "daemonsets.apps", "jobs.batch", "cronjobs.batch", "pods"} {
		for _, name := range []string{"bad", "worse"} {
			args = append(args, kind+"/"+name)
		}
	}
	_, err := sys.Cluster.Kubectl(ctx, args...)
	return err
}

// login makes a Secret of user and password for a URL. Its password may reach that URL alone.
func login(t *testing.T, name, url string) {
	t.Helper()
	password := "password-" + name + "-0123456789abcdef"
	canaries["the password in "+name] = password
	err := sys.Kube.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: production, Name: name},
		StringData: map[string]string{"url": url, "username": "user", "password": password},
	})
	require.NoError(t, err)
}

// text returns a handler that sends a text.
func text(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }
}

// stream sends n bytes of a text over and over.
func stream(n int64, of string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.Copy(w, endless(n, of)()) }
}

// drip sends a text byte by byte, until the other side hangs up.
func drip(of string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ticker := time.NewTicker(100 * time.Millisecond)
		defer ticker.Stop()
		for i := 0; ; i++ {
			select {
			case <-r.Context().Done():
				return
			case <-ticker.C:
				_, _ = io.WriteString(w, of[i%len(of):][:1])
				_ = http.NewResponseController(w).Flush()
			}
		}
	}
}

// moved redirects to a URL.
func moved(to string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", to)
		w.WriteHeader(http.StatusFound)
	}
}

// files serves handlers by their paths.
func files(of map[string]http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if h := of[strings.TrimPrefix(r.URL.Path, "/")]; h != nil {
			h(w, r)
			return
		}
		http.NotFound(w, r)
	}
}
