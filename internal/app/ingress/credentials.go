package ingress

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/pipeops/pipeops-vm-agent/internal/gateway/signin"
	"github.com/pipeops/pipeops-vm-agent/internal/htpasswd"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const (
	// lookAtSecrets is how long a Secret with credentials counts as current. Nothing reports
	// changes of a Secret but a write through this replica.
	lookAtSecrets = time.Minute
	// readAgain is how soon a Secret is read again that could not be read.
	readAgain     = 5 * time.Second
	secretTimeout = 5 * time.Second
	// maxCredentials bounds how many of a kind are remembered.
	maxCredentials = 2000
)

// credentials are what Secrets say of visitors, as they were read last.
type credentials[T any] struct {
	what string // that a Secret has, for messages
	// part returns what of a Secret counts, or why that is missing. parse reads it; its error
	// follows the Secret's name.
	part  func(data map[string][]byte) (part map[string][]byte, missing string)
	parse func(part map[string][]byte) (*T, error)

	mu    sync.Mutex
	known map[runnerapi.Key]credential[T]
}

type credential[T any] struct {
	value *T // nil if unmet is set
	sum   [sha256.Size]byte
	unmet string
	until time.Time
}

// users reads files of users, by the keys of ingress-nginx and F5.
func users() *credentials[htpasswd.File] {
	return &credentials[htpasswd.File]{what: "the users", part: func(data map[string][]byte) (map[string][]byte, string) {
		for _, name := range []string{"auth", "htpasswd"} {
			if file, there := data[name]; there {
				return map[string][]byte{name: file}, ""
			}
		}
		return nil, "has no key auth; give it a file that htpasswd wrote"
	}, parse: func(part map[string][]byte) (file *htpasswd.File, err error) {
		for name, text := range part {
			if file, err = htpasswd.Parse(text); err != nil {
				err = fmt.Errorf("key %s: %w", name, err)
			}
		}
		return file, err
	}}
}

func everything(data map[string][]byte) (map[string][]byte, string) { return data, "" }

// serviceTokens reads clients' tokens.
func serviceTokens() *credentials[signin.Tokens] {
	return &credentials[signin.Tokens]{what: "the service tokens", part: everything, parse: signin.ParseTokens}
}

// get returns what a Secret has, or why there is nothing. While the Secret cannot be read, what was
// read before counts.
func (c *credentials[T]) get(ctx context.Context, t *Router, key runnerapi.Key) (*T, string) {
	c.mu.Lock()
	had, known := c.known[key]
	c.mu.Unlock()
	now := t.now()
	if known && now.Before(had.until) {
		return had.value, had.unmet
	}
	got, err := c.read(ctx, t, key, had)
	got.until = now.Add(lookAtSecrets)
	if err != nil {
		t.log.Warn().Err(err).Msg("failed to read " + c.what + " of a route; retrying")
		got.until = now.Add(readAgain)
		if !known {
			got.unmet = "the Secret " + key.Name + " cannot be read"
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil || len(c.known) >= maxCredentials {
		c.known = map[runnerapi.Key]credential[T]{}
	}
	c.known[key] = got
	return got.value, got.unmet
}

func (c *credentials[T]) forget(key runnerapi.Key) (known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	had, known := c.known[key]
	had.until = time.Time{}
	if known {
		c.known[key] = had
	}
	return known
}

// read reads a Secret. What has not changed is the same as before, so that visitors stay signed in.
func (c *credentials[T]) read(ctx context.Context, t *Router, key runnerapi.Key, had credential[T]) (credential[T], error) {
	ctx, cancel := context.WithTimeout(ctx, secretTimeout)
	defer cancel()
	var secret corev1.Secret
	err := t.core.Get().Namespace(key.Namespace).Resource("secrets").Name(key.Name).Do(ctx).Into(&secret)
	if apierrors.IsNotFound(err) {
		return credential[T]{unmet: "there is no Secret " + key.Name + ", which has " + c.what}, nil
	}
	if err != nil {
		return had, fmt.Errorf("read secret %s: %w", key, err)
	}
	part, missing := c.part(secret.Data)
	if missing != "" {
		return credential[T]{unmet: "the Secret " + key.Name + " " + missing}, nil
	}
	text, err := json.Marshal(part)
	if err != nil {
		return had, err
	}
	sum := sha256.Sum256(text)
	if had.value != nil && had.sum == sum {
		return had, nil
	}
	value, err := c.parse(part)
	if err != nil {
		return credential[T]{unmet: "the Secret " + key.Name + ", " + err.Error()}, nil
	}
	return credential[T]{value: value, sum: sum}, nil
}
