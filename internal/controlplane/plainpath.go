package controlplane

import (
	"net/http"
	"path"
	"strings"
)

// plainPaths is a middleware that redirects from a path with //, /./ or /../ to the plain one.
// http.ServeMux would answer with a page as the body.
func plainPaths(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given := r.URL.EscapedPath()
		plain := plainPath(given)
		if plain == given || r.Method == http.MethodConnect || !strings.HasPrefix(given, "/") {
			next.ServeHTTP(w, r)
			return
		}
		if r.URL.RawQuery != "" {
			plain += "?" + r.URL.RawQuery
		}
		w.Header().Set("Location", plain)
		w.WriteHeader(http.StatusTemporaryRedirect)
	})
}

// plainPath keeps the / at the end.
func plainPath(given string) string {
	plain := path.Clean(given)
	if strings.HasSuffix(given, "/") && plain != "/" {
		return plain + "/"
	}
	return plain
}
