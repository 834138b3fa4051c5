package decode

import (
	"maps"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// mediaOf refuses a body that is of another content type, or encoding, than the call takes.
func mediaOf(r *http.Request, body *huma.RequestBody) *runnerapi.Error {
	if body == nil {
		return nil
	}
	types := slices.Sorted(maps.Keys(body.Content))
	fix := "send Content-Type: " + strings.Join(types, " or ")
	media, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch charset := params["charset"]; {
	case len(r.Header.Values("Content-Type")) == 0:
		return problem.Errorf(problem.MediaType, fix, "the body has no content type")
	case len(r.Header.Values("Content-Type")) > 1 || err != nil || !slices.Contains(types, media):
		return problem.Errorf(problem.MediaType, fix, "this call accepts no body of the content type %.100q", r.Header.Get("Content-Type"))
	case charset != "" && !strings.EqualFold(charset, "utf-8"):
		return problem.Errorf(problem.MediaType, "send UTF-8", "this call accepts no body in the charset %.40q", charset)
	case r.Header.Get("Content-Encoding") != "":
		return problem.Errorf(problem.MediaType, "send the body as it is", "this call accepts no encoded body")
	}
	return nil
}
