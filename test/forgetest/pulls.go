package forgetest

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Pull is an open pull or merge request.
type Pull struct {
	Number         int64
	Branch, Commit string
	Labels         []string
	Fork           bool
}

// Comment is a comment on a request.
type Comment struct {
	Number int64
	Text   string
}

// Open opens a request, or changes it.
func (s *Server) Open(p Pull) {
	s.set(func() {
		s.pulls = slices.DeleteFunc(s.pulls, func(other Pull) bool { return other.Number == p.Number })
		s.pulls = append(s.pulls, p)
	})
}

// Close closes a request, or all.
func (s *Server) Close(numbers ...int64) {
	s.set(func() {
		s.pulls = slices.DeleteFunc(s.pulls, func(p Pull) bool { return len(numbers) == 0 || slices.Contains(numbers, p.Number) })
	})
}

// Comments returns all comments.
func (s *Server) Comments() []Comment {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.comments)
}

// page returns the requests of a page, the newest first.
func (s *Server) page(r *http.Request, size string) []Pull {
	all := slices.Clone(s.pulls)
	slices.SortFunc(all, func(a, b Pull) int { return int(b.Number - a.Number) })
	page, _ := strconv.Atoi(r.URL.Query().Get("page"))
	most, _ := strconv.Atoi(r.URL.Query().Get(size))
	most = min(max(most, 1), 50) // Gitea's limit
	from := min(max(page-1, 0)*most, len(all))
	return all[from:min(from+most, len(all))]
}

// pullRequests answers about pull requests as GitHub and Gitea do.
func (s *Server) pullRequests(r *http.Request, at string, body map[string]any) (answer, bool) {
	parts := strings.Split(at, "/")
	switch {
	case r.Method == http.MethodGet && at == "pulls" && r.URL.Query().Get("state") == "open":
		size := "per_page"
		if strings.HasPrefix(r.URL.Path, Gitea) {
			size = "limit"
		}
		list := []any{}
		for _, p := range s.page(r, size) {
			from := map[string]any{"id": 1}
			if p.Fork {
				from = map[string]any{"id": 2}
			}
			labels := []any{}
			for _, l := range p.Labels {
				labels = append(labels, map[string]any{"name": l})
			}
			list = append(list, map[string]any{
				"number": p.Number, "labels": labels, "head": map[string]any{"ref": p.Branch, "sha": p.Commit, "repo": from},
				"base": map[string]any{"ref": "main", "sha": strings.Repeat("0", 40), "repo": map[string]any{"id": 1}},
			})
		}
		return answer{http.StatusOK, list}, true
	case r.Method == http.MethodPost && len(parts) == 3 && parts[0] == "issues" && parts[2] == "comments":
		return s.remark(parts[1], body), true
	case r.Method == http.MethodPatch && len(parts) == 3 && parts[0] == "issues" && parts[1] == "comments":
		return s.change(parts[2], body), true
	}
	return answer{}, false
}

// mergeRequests answers about merge requests as GitLab does.
func (s *Server) mergeRequests(r *http.Request, at string, body map[string]any) (answer, bool) {
	parts := strings.Split(at, "/")
	switch {
	case r.Method == http.MethodGet && at == "merge_requests" && r.URL.Query().Get("state") == "opened":
		list := []any{}
		for _, p := range s.page(r, "per_page") {
			from := 1
			if p.Fork {
				from = 2
			}
			list = append(list, map[string]any{
				"iid": p.Number, "sha": p.Commit, "source_branch": p.Branch, "labels": append([]string{}, p.Labels...),
				"source_project_id": from, "target_project_id": 1,
			})
		}
		return answer{http.StatusOK, list}, true
	case r.Method == http.MethodPost && len(parts) == 3 && parts[0] == "merge_requests" && parts[2] == "notes":
		return s.remark(parts[1], body), true
	case r.Method == http.MethodPut && len(parts) == 4 && parts[0] == "merge_requests" && parts[2] == "notes":
		return s.change(parts[3], body), true
	}
	return answer{}, false
}

func (s *Server) remark(number string, body map[string]any) answer {
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || !slices.ContainsFunc(s.pulls, func(p Pull) bool { return p.Number == n }) {
		return refuse(http.StatusNotFound, "Not Found")
	}
	s.comments = append(s.comments, Comment{n, text(body, "body")})
	return answer{http.StatusCreated, map[string]any{"id": len(s.comments)}}
}

func (s *Server) change(id string, body map[string]any) answer {
	n, err := strconv.Atoi(id)
	if err != nil || n < 1 || n > len(s.comments) || s.comments[n-1].Text == "" {
		return refuse(http.StatusNotFound, "Not Found")
	}
	s.comments[n-1].Text = text(body, "body")
	return answer{http.StatusOK, map[string]any{"id": n}}
}
