package gitea

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/stretchr/testify/require"
)

// maxAnswer bounds what is read of an answer, in bytes.
const maxAnswer = 1 << 20

// try calls the API, and decodes the answer into out if that is not nil.
func (s *Server) try(method, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.URL+"/api/v1"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "token "+s.Token)
	r.Header.Set("Content-Type", "application/json")
	resp, err := s.client.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return err
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, text)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(text, out)
}

func (s *Server) call(method, path string, in, out any) {
	s.t.Helper()
	require.NoError(s.t, s.try(method, path, in, out))
}

// Repository is one of the user's repositories, with the branch main.
type Repository struct {
	server *Server
	Name   string // OWNER/NAME
	URL    string // to clone it
}

// Create creates a repository.
func (s *Server) Create(name string) *Repository {
	s.t.Helper()
	s.call(http.MethodPost, "/user/repos", map[string]any{"name": name, "private": true, "auto_init": true, "default_branch": "main"}, nil)
	return &Repository{s, Owner + "/" + name, s.URL + "/" + Owner + "/" + name + ".git"}
}

func (r *Repository) call(method, path string, in, out any) {
	r.server.t.Helper()
	r.server.call(method, "/repos/"+r.Name+path, in, out)
}

// Commit commits a file to a branch, which it creates from main. It returns the commit.
func (r *Repository) Commit(branch, path, content string) string {
	r.server.t.Helper()
	change := map[string]any{
		"message": "change " + path, "branch": branch,
		"files": []map[string]string{{"operation": "upload", "path": path, "content": base64.StdEncoding.EncodeToString([]byte(content))}},
	}
	if r.server.try(http.MethodGet, "/repos/"+r.Name+"/branches/"+branch, nil, nil) != nil {
		change["branch"], change["new_branch"] = "main", branch
	}
	var made struct {
		Commit struct {
			SHA string `json:"sha"`
		} `json:"commit"`
	}
	r.call(http.MethodPost, "/contents", change, &made)
	return made.Commit.SHA
}

// AddWebhook has Gitea tell a URL of pushes and pull requests.
func (r *Repository) AddWebhook(url, secret string) {
	r.server.t.Helper()
	r.call(http.MethodPost, "/hooks", map[string]any{
		"type": "gitea", "active": true, "events": []string{"push", "pull_request"},
		"config": map[string]string{"url": url, "content_type": "json", "secret": secret},
	}, nil)
}

// Open opens a pull request of a branch, and returns its number.
func (r *Repository) Open(branch string) (number int64) {
	r.server.t.Helper()
	var made struct {
		Number int64 `json:"number"`
	}
	r.call(http.MethodPost, "/pulls", map[string]string{"title": "Try " + branch, "head": branch, "base": "main"}, &made)
	return made.Number
}

// Close closes a pull request.
func (r *Repository) Close(number int64) {
	r.server.t.Helper()
	r.call(http.MethodPatch, fmt.Sprintf("/pulls/%d", number), map[string]string{"state": "closed"}, nil)
}

// Status is the newest state of a commit.
type Status struct {
	State       string `json:"status"`
	Context     string `json:"context"`
	Description string `json:"description"`
	URL         string `json:"target_url"`
}

// Statuses returns the newest states of a commit, by context.
func (r *Repository) Statuses(commit string) []Status {
	r.server.t.Helper()
	var all struct {
		Statuses []Status `json:"statuses"`
	}
	r.call(http.MethodGet, "/commits/"+commit+"/status", nil, &all)
	return all.Statuses
}

// Comments returns the comments on a pull request.
func (r *Repository) Comments(number int64) (texts []string) {
	r.server.t.Helper()
	var all []struct {
		Body string `json:"body"`
	}
	r.call(http.MethodGet, fmt.Sprintf("/issues/%d/comments", number), nil, &all)
	for _, c := range all {
		texts = append(texts, c.Body)
	}
	return texts
}
