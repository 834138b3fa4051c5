package forge

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/source/git"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

var commentRights = rights{"comment on pull requests of", map[runnerapi.Forge]string{
	runnerapi.GitHub: "write access to pull requests", runnerapi.GitLab: gitlabAPI, runnerapi.Gitea: "the scope write:issue",
}, map[string]string{"pull_requests": "write"}}

// Comment writes a comment on a request: in place of the one with an ID, unless that is 0 or the
// comment is gone. It returns the ID. Its errors are those of Send.
func Comment(ctx context.Context, remote git.Remote, r Repository, c Credentials, number, id int64, text string) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	at, err := open(ctx, remote, r, c, commentRights)
	if err != nil {
		return id, err
	}
	defer at.close()
	if id != 0 {
		err := at.comment(ctx, number, &id, text)
		if g, ok := errors.AsType[*git.Error](err); !ok || g.Reason != git.NotFound {
			return id, err
		}
		id = 0
	}
	return id, at.comment(ctx, number, &id, text)
}

func (c *client) comment(ctx context.Context, number int64, id *int64, text string) error {
	list, one := fmt.Sprintf("/repos/%s/issues/%d/comments", c.repository.escaped(), number), "/repos/"+c.repository.escaped()+"/issues/comments"
	change := http.MethodPatch
	if c.repository.kind == runnerapi.GitLab {
		list = fmt.Sprintf("%s/merge_requests/%d/notes", c.project(), number)
		one, change = list, http.MethodPut
	}
	body := map[string]string{"body": text}
	if *id != 0 {
		return c.call(ctx, change, fmt.Sprintf("%s/%d", one, *id), body, nil, maxAnswer)
	}
	var made struct {
		ID int64 `json:"id"`
	}
	err := c.post(ctx, list, body, &made)
	*id = made.ID
	return err
}

// Code returns a text as code in Markdown, in which it mentions no one and links nowhere.
func Code(text string) string {
	return "`" + strings.ReplaceAll(clip(text, maxComment), "`", "'") + "`"
}

// maxComment bounds a text in a comment.
const maxComment = 1000
